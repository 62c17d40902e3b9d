"""What a message must name, in whatever words it says so."""

import re


def naming(*words: object) -> str:
    """A pattern for `match=` and `re.search`: each of these is in the text, in any order.

    Words are what a reader needs (the file, the row, the field, what was found, the fix), so that a
    sentence can be made better without touching its test.
    """
    return r"(?s)\A" + "".join(f"(?=.*{re.escape(str(word))})" for word in words)

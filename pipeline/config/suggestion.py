"""What a misspelt name was probably meant to be."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MOST = 24


def suggestion(name: str, known: Iterable[str]) -> str:
    """A sentence to put behind a refusal; empty if nothing known is similar.

    >>> suggestion("seeed", ["seed", "model"])
    ' Did you mean seed?'
    """
    found = get_close_matches(name, list(known), n=1)
    return f" Did you mean {found[0]}?" if found else ""


def first_of(known: Sequence[str]) -> str:
    """The known names, as far as a sentence has room for them.

    >>> first_of(["a", "b"]), first_of(["a"] * 116)[-9:]
    ('a, b', ', … (116)')
    """
    more = f", … ({len(known)})" if len(known) > _MOST else ""
    return f"{', '.join(known[:_MOST])}{more}"

"""What a misspelt name was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(name: str, known: Iterable[str]) -> str:
    """A sentence to put behind a refusal; empty if nothing known is similar.

    >>> suggestion("seeed", ["seed", "model"])
    ' Did you mean seed?'
    """
    found = get_close_matches(name, list(known), n=1)
    return f" Did you mean {found[0]}?" if found else ""

"""Counts, lists and names in messages, as a person writes them."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MOST = 24  # names in a sentence


def count(n: float, noun: str) -> str:
    """A number with its noun, in the plural where it is not one.

    >>> count(1, "problem"), count(0, "shard"), count(1200, "prompt"), count(2, "category")
    ('1 problem', '0 shards', '1,200 prompts', '2 categories')
    """
    ends = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,.0f} {noun if n == 1 else ends}"


def few(lines: Sequence[str], most: int = 4, width: int = 100) -> str:
    """The first of some lines in a row, each cut where it is long, and how many more there are.

    >>> few(["seed: 0 → 1"]), few(["a", "b", "c"], most=1), few(["abcdef"], width=4)
    ('seed: 0 → 1', 'a; 2 more', 'abc…')
    """
    cut = [each if len(each) <= width else f"{each[: width - 1]}…" for each in lines[:most]]
    return "; ".join([*cut, *([f"{len(lines) - most} more"] if len(lines) > most else [])])


def listed(names: Iterable[str], last: str = "and") -> str:
    """Names in a row; "none" where there is none.

    >>> listed(["a", "b", "c"]), listed(["a", "b"], "or"), listed([])
    ('a, b and c', 'a or b', 'none')
    """
    *before, end = [*names] or ["none"]
    return f"{', '.join(before)} {last} {end}" if before else end


def suggestion(name: str, known: Iterable[str]) -> str:
    """What a misspelt name was probably meant to be, as a sentence to put behind a refusal.

    Empty if nothing known is similar.

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

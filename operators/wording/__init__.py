"""Counts, lists and names in messages, as a person writes them."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MOST = 24  # names in a sentence
_LINES, _WIDTH = 4, 100


def count(n: float, noun: str) -> str:
    """A number with its noun, in the plural where it is not one.

    >>> count(1, "problem"), count(0, "shard"), count(1200, "prompt"), count(2, "category")
    ('1 problem', '0 shards', '1,200 prompts', '2 categories')
    """
    ends = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,.0f} {noun if n == 1 else ends}"


def few(lines: Sequence[str]) -> str:
    """The first of some lines in a row, each cut where it is long, and how many more there are.

    >>> few(["seed: 0 → 1"]), few([*"abcdef"]), few(["a" * 101]) == "a" * 99 + "…"
    ('seed: 0 → 1', 'a; b; c; d; 2 more', True)
    """
    cut = [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in lines[:_LINES]]
    return "; ".join([*cut, *([f"{len(lines) - _LINES} more"] if len(lines) > _LINES else [])])


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

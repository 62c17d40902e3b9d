"""Counts and lists in messages, as a person writes them."""

from collections.abc import Iterable, Sequence


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

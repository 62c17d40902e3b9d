"""Counts and lists in messages, as a person writes them."""

from collections.abc import Iterable


def count(n: float, noun: str) -> str:
    """A number with its noun, in the plural where it is not one.

    >>> count(1, "problem"), count(0, "shard"), count(1200, "prompt"), count(2, "category")
    ('1 problem', '0 shards', '1,200 prompts', '2 categories')
    """
    ends = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,.0f} {noun if n == 1 else ends}"


def listed(names: Iterable[str], last: str = "and") -> str:
    """Names in a row; "none" where there is none.

    >>> listed(["a", "b", "c"]), listed(["a", "b"], "or"), listed([])
    ('a, b and c', 'a or b', 'none')
    """
    *before, end = [*names] or ["none"]
    return f"{', '.join(before)} {last} {end}" if before else end

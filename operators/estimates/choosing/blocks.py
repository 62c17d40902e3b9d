"""Blocks: a budget is asked in parts, one after the other, of which all so far are a sample."""

_HALVINGS = 3
_FIRST = 10_000  # prompts: what a GPU answers in about a minute


def budgets(n: int) -> list[int]:
    """The budgets that lead to one of n prompts: an eighth, a quarter, a half, all of it.

    A large one begins with an eighth of an eighth, and so on: the first numbers come soon, whatever
    is asked in all, and what many small blocks would cost is not paid.

    >>> budgets(80), budgets(320_000), budgets(3)
    ([10, 20, 40, 80], [5000, 40000, 80000, 160000, 320000], [3])
    """
    found = [n >> halved for halved in range(_HALVINGS, -1, -1)]
    while found[0] > _FIRST:
        found.insert(0, found[0] >> _HALVINGS)
    return [*(each for each in found[:-1] if each > 1), n]

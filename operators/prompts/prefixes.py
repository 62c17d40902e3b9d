"""How much of a prompt an engine has just seen: the prefix that it shares with the one before."""

from collections.abc import Sequence

import numpy as np


def n_shared(ids: Sequence[Sequence[int]]) -> int:
    """The tokens that each prompt shares, from its start, with the one before it; summed.

    >>> n_shared([[1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 5], [2]])
    6
    """
    if len(ids) < 2:
        return 0
    longest = max(map(len, ids))
    table = np.full((len(ids), longest), -1, dtype=np.int64)
    for row, each in enumerate(ids):
        table[row, : len(each)] = each
    equal = (table[1:] == table[:-1]) & (table[1:] >= 0)
    return int(np.logical_and.accumulate(equal, axis=1).sum())

"""How prompts are cut into shards: whole ones, then ever smaller ones, for the end of a sweep.

Engines take the largest shards first. When there are none left to take, one may still be at its
last shard while the others wait for it; the smaller the last ones are, the shorter they wait.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import polars as pl

FEWEST = 1024  # prompts of a shard, unless shards are to be smaller: half a minute of a slow model


def ends(n: int, size: int, fewest: int = FEWEST) -> list[int]:
    """Where the shards of a relation's `n` prompts end.

    Each has at most `size`, an eighth of all, and a third of what is left; but none has less than
    `fewest` (or `size`, where that is smaller), except for the last.

    >>> ends(16000, size=5000, fewest=500)
    [2000, 4000, 6000, 8000, 10000, 12000, 13333, 14222, 14814, 15314, 15814, 16000]
    >>> ends(16000, size=5000, fewest=5000)
    [5000, 10000, 15000, 16000]
    """
    found: list[int] = []
    end = 0
    while end < n:
        end = min(n, end + min(size, max(fewest, min(n // 8, (n - end) // 3))))
        found.append(end)
    return found


def shards(
    prompts: pl.DataFrame, together: str, size: int, fewest: int = FEWEST
) -> Iterator[pl.DataFrame]:
    """The prompts in shards, none of which ends between two with the same value in `together`."""
    kinds = pl.DataFrame({"kind": prompts[together].rle_id()}).with_row_index("place")
    firsts = kinds.select(pl.first("place").over("kind")).to_series()
    numbers = np.searchsorted(ends(prompts.height, size, fewest), firsts, side="right")
    begins = np.unique(numbers, return_index=True)[1].tolist()
    for begin, end in pairwise([*begins, prompts.height]):
        yield prompts[begin:end]

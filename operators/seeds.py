"""Random numbers that depend only on a run's seed and a row's id."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]


def key(*parts: object) -> int:
    """A 64-bit number from the parts, the same on every machine (BLAKE2b).

    >>> key(0, "P36.Q142") == key(0, "P36.Q142") != key(1, "P36.Q142")
    True
    """
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def keys(seed: int, purpose: str, ids: Iterable[str]) -> Keys:
    """`key(seed, purpose, id)` for each id: u64, one per row."""
    return np.array([key(seed, purpose, row_id) for row_id in ids], dtype=np.uint64)


def generator(*parts: object) -> np.random.Generator:
    """A numpy generator seeded from the parts."""
    return np.random.default_rng(key(*parts))


def mix(values: Keys) -> Keys:
    """A well-stirred 64-bit number for each number (the finaliser of SplitMix64, Steele 2014)."""
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def distinct_indices(rows: Keys, *, count: int, among: int) -> NDArray[np.int64]:
    """For each row, `count` distinct numbers below `among`, in random order: (rows, count).

    Floyd's algorithm, all rows at once, then a random order of each row.
    """
    chosen = np.full((len(rows), count), -1, dtype=np.int64)
    for column, limit in enumerate(range(among - count, among)):
        draws = (mix(rows + np.uint64(column)) % np.uint64(limit + 1)).astype(np.int64)
        is_taken = (chosen[:, :column] == draws[:, None]).any(axis=1)
        chosen[:, column] = np.where(is_taken, limit, draws)
    columns = np.arange(count, 2 * count, dtype=np.uint64)
    order = np.argsort(mix(rows[:, None] + columns[None, :]), axis=1)
    return np.take_along_axis(chosen, order, axis=1)

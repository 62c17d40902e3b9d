"""A budget of prompts: how many laps each fact of a setting gets."""

import numpy as np
from numpy.typing import NDArray

from factsweep.operators.seeds import generator

IntArray = NDArray[np.int64]

# Facts are asked in two laps at once: a pair of answers is the least that says how far a fact's
# answers vary, and that Consist is defined for.
LAPS_AT_ONCE = 2


def allotted(
    budget: int, n_prompts: IntArray, relation: IntArray, place_in_relation: IntArray, *, seed: int
) -> IntArray:
    """How many of its prompts each fact is asked, so that at most `budget` are asked in all.

    `n_prompts` has what each fact has in all, `relation` its relation's number,
    `place_in_relation` its place there in random order. Facts of all relations get laps in the
    same proportion, two at once, each fact its first two before any gets more. A larger budget
    contains a smaller one, and a budget of all prompts is all of them.

    >>> one, two = np.array([0, 0, 0, 0]), np.arange(4)
    >>> allotted(5, np.full(4, 10), one, two, seed=1).tolist()
    [2, 2, 0, 0]
    >>> allotted(10, np.full(4, 10), one, two, seed=1).tolist()
    [4, 2, 2, 2]
    """
    order = in_proportion(relation, place_in_relation, seed)
    total = int(n_prompts.sum())
    if budget >= total:
        return n_prompts.copy()
    low, high = 0, int(n_prompts.max()) // LAPS_AT_ONCE + 1
    while high - low > 1:  # the most pairs of laps that all facts can have
        middle = (low + high) // 2
        fits = np.minimum(LAPS_AT_ONCE * middle, n_prompts).sum() <= budget
        low, high = (middle, high) if fits else (low, middle)
    laps = np.minimum(LAPS_AT_ONCE * low, n_prompts)
    more = np.minimum(LAPS_AT_ONCE, n_prompts - laps)[order]
    fits_too = np.cumsum(more) <= budget - laps.sum()
    laps[order] += np.where(fits_too, more, 0)
    return laps


def in_proportion(relation: IntArray, place: IntArray, seed: int) -> IntArray:
    """The facts in an order of which every beginning has the relations' share of each."""
    sizes = np.bincount(relation)
    start = generator(seed, "budget").random(len(sizes))
    return np.argsort((place + start[relation]) / sizes[relation], kind="stable")

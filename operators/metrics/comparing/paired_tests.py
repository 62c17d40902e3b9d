"""Tests of two runs over the same facts: McNemar's, its generalisation, and Holm's correction."""

from collections.abc import Sequence
from itertools import product
from math import asin, erfc, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Up to so many changed facts, all 2^n signs are enumerated; beyond, the normal approximation is
# close.
_EXACT = 14
_TIE = 1e-9


class McNemar(NamedTuple):
    """Two-sided p-values of McNemar's test."""

    exact: float
    mid_p: float


def mcnemar(n_gained: int, n_lost: int) -> McNemar:
    """Test whether as many facts are gained as are lost (McNemar 1947).

    If both runs know equally much, a fact that only one of them knows belongs to either with
    probability 1/2. `exact` is the binomial test on that; `mid_p` counts what is as likely as the
    observed half, which keeps its level in practice and is less conservative (Fagerland, Lydersen
    and Laake 2013). Both are 1 where no fact changed.

    >>> mcnemar(5, 0)
    McNemar(exact=0.0625, mid_p=0.03125)
    """
    from scipy.stats import binom

    n, fewer = n_gained + n_lost, min(n_gained, n_lost)
    below, up_to = binom.cdf([fewer - 1, fewer], n, 0.5)
    return McNemar(min(1.0, float(2 * up_to)), float(below + up_to))


def sign_flip(changes: FloatArray) -> float | None:
    """Test whether changes of facts (second − first) lie around 0: a two-sided mid-p-value.

    If the two runs are alike, each fact's change is as likely with the opposite sign (Fisher's
    randomisation test for pairs, 1935, section 21). The statistic is the sum of the changes. With
    changes of −1, 0 and 1 this is McNemar's test, so that facts and shares are tested alike. Exact
    up to 14 changes that are not 0; beyond, the normal approximation with the same variance, Σ
    change². 1 where nothing changed; None without facts.

    >>> sign_flip(np.array([0.5, 0.25, 0.0]))
    0.25
    """
    if not changes.size:
        return None
    moved = changes[changes != 0]
    if not moved.size:
        return 1.0
    if moved.size > _EXACT:
        return erfc(abs(moved.sum()) / sqrt(2 * np.square(moved).sum()))
    signs = np.array(list(product((-1.0, 1.0), repeat=moved.size)))
    sums, observed = np.abs(signs @ moved), abs(moved.sum())
    tie = _TIE * np.abs(moved).sum()
    if observed <= tie:
        return 1.0
    beyond, tied = sums > observed + tie, np.abs(sums - observed) <= tie
    return float(beyond.mean() + tied.mean() / 2)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct the p-values of one family of tests (Holm 1979); None is no test, and stays.

    The k-th smallest of m is multiplied by m − k + 1, and none is smaller than the one before it.
    The chance of any false alarm is then at most the level, however the tests depend on each
    other.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for k, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - k)))
        adjusted[place] = largest
    return adjusted


def cohens_h(first: float, second: float) -> float:
    """The distance of two shares (0 to 1) after the arcsine transformation (Cohen 1988, chapter 6).

    2 asin √second − 2 asin √first, −π to π: a step near 0 or 1 weighs more than one around the
    middle. Cohen calls .2 small, .5 medium and .8 large.

    >>> round(cohens_h(0.5, 0.75), 4)
    0.5236
    """
    # Means of shares can pass 0 or 1 by a rounding error.
    one, other = (2 * asin(sqrt(min(max(share, 0.0), 1.0))) for share in (first, second))
    return other - one

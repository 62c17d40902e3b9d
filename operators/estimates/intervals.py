"""Intervals of the full run's numbers: of shares of rare events, look after look, and as bands.

**Shares.** The estimated variance of a share is 0 where the sample has no event of its kind. Two
corrections, both of counts:

- The variance is compared with that of as many independent answers, p(1 − p)/n; their ratio, the
  design effect, is shrunk to 1 as if two further events had been seen (as Agresti and Coull 1998
  add two). Without any event the sample counts as n independent answers.
- The interval is Wilson's (1927) with n over the design effect answers (Korn and Graubard 1998;
  Franco, Little, Louis and Slud 2019). It ends where p would be refuted: of n answers without a
  right one the upper end is 3.84/(n + 3.84), next to the rule of three.

**Looks.** An interval may be computed again with more prompts until it is narrow enough. So the 5 %
are spent over the looks (group-sequential bounds): at look k the interval is the estimate ± c_k
standard errors, with c_k such that with 95 % all intervals up to there cover the full run's number
(repeated confidence intervals; Jennison and Turnbull 1989). A sample contains the earlier ones, so
with I = 1/variance the looks are those of a Brownian motion at times I_k (Jennison and Turnbull
1999, section 3.1). The share spent until a look is Lan and DeMets's (1983) function of O'Brien and
Fleming's type for each side, 2 − 2 Φ(2.24/√t), at t = I_k / I*: I* is the information at which the
interval is narrow enough (Mehta and Tsiatis 2001). The last look has c of some 2.0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.crossed import FloatArray

UNSEEN = 2.0  # events
_DIGITS = 14
Z = 1.959963984540054  # standard errors on each side of a 95 % interval
GROWTH = np.sqrt(2)  # of the budget from look to look, at least
_MOST_GROWTH = 4.0  # while some facts are not asked, variance falls faster than predicted
# More standard errors than the last look needs, however many looks come before.
_SURE = 2.1
_FAR = 8.0
_N_POINTS = 401


class IntervalEstimate(NamedTuple):
    """A number of the full run with its 95 % interval; `why` has the reason where one is null."""

    value: float | None
    full_low: float | None
    full_high: float | None
    why: str | None = None


def exact_estimate(value: float) -> IntervalEstimate:
    """A number without error, since all prompts were asked."""
    return IntervalEstimate(value, value, value)


def within_bounds(value: float, half: float) -> IntervalEstimate:
    """A share of the full run with its interval, cut at 0 and 1.

    >>> within_bounds(0.25, 0.5)
    IntervalEstimate(value=0.25, full_low=0.0, full_high=0.75, why=None)
    """
    return IntervalEstimate(value, max(0.0, value - half), min(1.0, value + half))


def wider_side(value: float, low: float, high: float) -> float:
    """Half the width of an interval that need not be symmetric: the wider of its two sides."""
    return max(high - value, value - low)


def half_width(variance: float, degrees: float) -> float:
    """Half the width of a 95 % interval; Student's, of the variance's degrees of freedom."""
    from scipy.stats import t

    return float(t.isf(0.025, max(1.0, degrees)) * np.sqrt(max(0.0, variance)))


def unseen_variance(n: float, unsampled_share: float) -> float:
    """The variance of a share of `n` by unseen events; `unsampled_share` was not asked."""
    return UNSEEN * unsampled_share / n**2


def share_interval(
    value: float, variance: float, degrees: float, *, n: float, left: float
) -> IntervalEstimate:
    """The 95 % interval of a share of the full run, from the share among `n` of a sample.

    `left` is the share of the full run that was not asked, a factor of the variance.

    >>> share_interval(0.0, 0.0, 1000, n=100, left=1.0)[:3]
    (0.0, 0.0, 0.03707...)
    """
    from scipy.stats import t

    value = round(float(value), _DIGITS)  # sums of weights end next to 1
    independent = value * (1 - value) * left / n
    correction = unseen_variance(n, left)
    effect = (max(0.0, variance) + correction) / (independent + correction)
    wilson = float(t.ppf(0.975, max(1.0, degrees))) ** 2 * left * effect / n
    half = np.sqrt(wilson * (value * (1 - value) + wilson / 4)) / (1 + wilson)
    middle = (value + wilson / 2) / (1 + wilson)
    low, high = max(0.0, float(middle - half)), min(1.0, float(middle + half))
    return IntervalEstimate(value, min(low, value), max(high, value))


class InterimLook(NamedTuple):
    """A look: the standard errors on each side of the estimate, and the interval's half-width."""

    bound: float
    half_width: float


def look(variances: Sequence[float], half_width: float) -> InterimLook:
    """The last of several looks at an estimate, given its variance at each.

    >>> look([0.0001], 0.03)
    InterimLook(bound=1.9599..., half_width=0.01959...)
    >>> look([0.0004, 0.0002], 0.03).bound
    1.969...
    """
    floored = np.maximum(np.array(variances, dtype=np.float64), 1e-24)
    information = np.maximum.accumulate(1 / floored)
    times = np.minimum(1.0, information * (half_width / _SURE) ** 2)
    bound = bounds(information, spent_alpha(times))[-1]
    return InterimLook(bound, bound * float(np.sqrt(variances[-1])))


def spent_alpha(times: FloatArray) -> FloatArray:
    """The part of the 5 % that is spent at times up to 1."""
    from scipy.stats import norm

    shares: FloatArray = 4 * norm.sf(norm.isf(0.0125) / np.sqrt(times))
    return shares


def bounds(information: FloatArray, spent: FloatArray) -> list[float]:
    """The bounds of several looks, in standard errors, given the share spent up to each.

    By numerical integration over the paths within bounds (Armitage, McPherson and Rowe 1969).
    Infinite for a look that spends nothing.
    """
    found_bounds: list[float] = []
    points, weights = np.zeros(1), np.ones(1)  # the positions of the motion, and their density
    last_time, last_total = 0.0, 0.0
    for time, total in zip(information, spent, strict=True):
        step = np.sqrt(time - last_time)
        bound = _bound(points, weights, step, float(np.sqrt(time)), total - last_total)
        found_bounds.append(bound)
        if step > 0:
            end = min(bound, _FAR) * np.sqrt(time)
            grid = np.linspace(-end, end, _N_POINTS)
            distance = (grid[:, None] - points) / step
            width = np.full(len(grid), grid[1] - grid[0])
            width[[0, -1]] /= 2  # the trapezoidal rule
            density = np.exp(-(distance**2) / 2) @ weights / (step * np.sqrt(2 * np.pi))
            points, weights = grid, density * width
        last_time, last_total = time, total
    return found_bounds


def _bound(
    points: FloatArray, weights: FloatArray, step: float, root: float, chance: float
) -> float:
    """The bound that is crossed for the first time with the chance `chance`."""
    from scipy.stats import norm

    if chance <= 0 or step <= 0:
        return float("inf")
    low, high = 0.0, _FAR
    for _ in range(60):
        middle = (low + high) / 2
        ends = middle * root
        outside = norm.sf((ends - points) / step) + norm.cdf((-ends - points) / step)
        low, high = (middle, high) if weights @ outside > chance else (low, middle)
    return high


def next_share(share: float, variance: float | None, half_width: float) -> float:
    """The share of the prompts to ask for the next look: 1.41 or 2, 2.8, 4 times as many, or all.

    The least of these with a predicted interval that is narrow enough: a variance is proportional
    to 1/share − 1.

    >>> next_share(0.01, (0.003 / 2.1) ** 2 * 2.5, 0.003)
    0.028...
    """
    target_share = share * GROWTH
    if variance is None:
        target_share = share * 2
    else:
        enough = 1 / (1 + (1 / share - 1) * (half_width / _SURE) ** 2 / variance)
        while target_share < min(enough, share * _MOST_GROWTH / 1.01):
            target_share *= GROWTH
    return float(target_share) if target_share < 1 / GROWTH else 1.0


def add_bands(points: pl.DataFrame) -> pl.DataFrame:
    """The points with a band of the full runs' values that holds for all of a setting at once.

    Each of n intervals has an error of 1 − .95^(1/n), so that all hold with 95 % at least (Šidák
    1967, of normal errors): each side is stretched by the ratio of the quantiles.
    Columns read: setting, value, ci_low, ci_high and estimated, which is null for full runs, whose
    value is exact. Written: band_low and band_high; null for an estimate without an interval.
    """
    from scipy.stats import norm

    def stretch(n: int) -> float:
        return float(norm.isf((1 - 0.95 ** (1 / max(1, n))) / 2)) / Z

    is_part = pl.col("estimated").is_not_null()
    n = (is_part & pl.col("ci_low").is_not_null()).sum().over("setting")
    wider = pl.when(is_part).then(n.map_elements(stretch, return_dtype=pl.Float64)).otherwise(0.0)
    return points.with_columns(
        (pl.col("value") + wider * (pl.col(f"ci_{end}") - pl.col("value")))
        .clip(0, 1)
        .alias(f"band_{end}")
        for end in ("low", "high")
    )

"""Consist from a sample with a control: an earlier run's answers to all prompts.

Of a fact, let u be the share of matching pairs among its sampled prompts, k the same of the
control's answers to these prompts, and K that of the control's answers to all of the fact's. Both
shares are U-statistics of a simple random sample of its prompts (`agreement.py`), so E k = K, and

    u − β (k − K)

has the mean of u whatever β is: the difference estimator (`control.py`) with pairs in place of
prompts. It is the U-statistic of g = h − β h', where h and h' say whether two answers of the one
and of the other match: its variance is that of Consist with the means C, A, B of g in place of h.
With s = Σ g and q = Σ g² over the fact's other sampled prompts, the products of two pairs sum up to
Σ (s² − q) / 2 where they share a prompt, and to ((Σ s / 2)² − Σ q / 2) / 2 less these where not.
Where fewer than half of the facts have four sampled prompts (a few facts do not show what is rare),
the squared distance of u − β (k − K) from what the control foretells of it stands in: its mean is
the variance, and the squared distance of the fact's own Consist in addition, so that the interval
is too wide rather than too narrow.

β, and the coefficient of K, which tells facts apart, are fitted for the facts of a fifth to the
others. As E (k − K) = 0 for each fact, the facts' different levels do not disturb β. A changed
answer moves Consist by 2/n, twice as far as a mean of n answers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.agreement import (
    consist,
    moments_of,
    n_matching,
    shares_of,
    variance_of_share,
)
from factsweep.operators.estimates.controls.control import (
    N_FOLDS,
    Controlled,
    by_relation,
    foreseen,
    of_unseen,
)
from factsweep.operators.estimates.crossed import BoolArray, Crossed, FloatArray
from factsweep.operators.estimates.groups import centred, summed
from factsweep.operators.estimates.intervals import half_width, within_bounds
from factsweep.operators.estimates.means import of_both_stages
from factsweep.operators.seeds import generator


class Agreed(NamedTuple):
    """How a control's answers match: one row per sampled prompt, and one per fact.

    `matches` counts the fact's other sampled prompts whose answers by the control match that to
    this one, `both` those where the sample's own match too. `full` is the share of matching pairs
    of all prompts of a fact, and 0 as the other two where the control did not answer all (`whole`).
    """

    matches: FloatArray
    both: FloatArray
    full: FloatArray
    whole: BoolArray


def agreed(
    pairs: pl.DataFrame, answers: pl.DataFrame, earlier: Callable[[str], pl.DataFrame]
) -> Agreed:
    """Read a control; the tables are those of `control.controls`."""
    matches, both = np.zeros((2, answers.height))
    full, whole = [], []
    for n_facts, rows, asked in by_relation(pairs, answers, earlier):
        fact = rows["fact"].to_numpy()
        n = np.bincount(fact, minlength=n_facts)
        hits = summed(fact, n_matching(rows).to_numpy(), n_facts)
        full.append(hits / np.maximum(1, n * (n - 1)))
        whole.append(n > 1)
        others = asked.with_columns(other=rows["key"].gather(asked["row"]))
        place = asked["index"].to_numpy()
        matches[place] = n_matching(others, keys=("other",))
        both[place] = n_matching(others, keys=("key", "other"))
    return Agreed(matches, both, np.concatenate(full), np.concatenate(whole))


def controlled_consist(
    sample: Crossed, matches: FloatArray, control: Agreed, *, seed: int
) -> Controlled:
    """Estimate Consist with a control."""
    n, counts = sample.n_asked, sample.n_prompts >= 2
    plain, shares = consist(sample, matches), shares_of(sample, matches)
    if sample.is_all or plain.width is None:
        return Controlled(plain, shares, None)
    weights, asked = counts / counts.sum(), sample.is_asked & counts
    fold = generator(seed, "pairs of prompts").permutation(sample.n_facts) % N_FOLDS
    more = shares_of(sample, control.matches) - control.full
    more = np.where(control.whole & (n > 1), more, 0.0)
    places = np.flatnonzero(asked)
    known, slopes = foreseen(shares[places], control.full, places, sample.strata, fold, more)
    without = shares - slopes[:, 0] * more
    left = without - known
    here = sample.sampled_weights(weights)
    within, degrees = _within(sample, matches, control, slopes[:, 0], left, asked)
    total = float((here[asked] ** 2 * within).sum())
    variance, degrees = of_both_stages(sample, left, weights, total, degrees)
    assert variance is not None
    half = half_width(max(0.0, variance) + 4 * of_unseen(sample), degrees)
    narrow = within_bounds(float(here @ left + weights @ known), half)
    assert narrow.width is not None
    return Controlled(narrow, without, len(sample.fact) * (plain.width / narrow.width) ** 2)


def _within(
    sample: Crossed,
    matches: FloatArray,
    control: Agreed,
    slopes: FloatArray,
    left: FloatArray,
    asked: BoolArray,
) -> tuple[FloatArray, float]:
    """The variance of each asked fact's share, and its degrees of freedom."""
    n, enough = sample.n_asked.astype(np.float64), sample.n_asked >= 4
    if enough.sum() < asked.sum() / 2:  # the squared distance from the stratum's mean stands in
        stratum = sample.strata[asked]
        among = np.bincount(stratum)[stratum]
        squares = centred(stratum, left[asked]) ** 2 * among / np.maximum(1, among - 1)
        return squares, float(asked.sum())
    own = np.where(control.whole, slopes, 0.0)[sample.fact]
    sums = matches - own * control.matches
    products = matches - 2 * own * control.both + own**2 * control.matches
    moments = moments_of(sample, sums, products)
    size = sample.n_prompts.astype(np.float64)
    return variance_of_share(moments, n, size, enough)[asked], float(enough.sum())

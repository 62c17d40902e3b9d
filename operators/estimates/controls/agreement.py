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
from numpy.typing import NDArray

from factsweep.operators.estimates.agreement import (
    Moments,
    consist,
    n_matching,
    over_pairs,
    variance_of_share,
)
from factsweep.operators.estimates.controls.control import (
    N_FOLDS,
    Controlled,
    cross_fitted,
    group_means,
    of_unseen,
    whole_facts,
)
from factsweep.operators.estimates.crossed import (
    Crossed,
    FloatArray,
    half_width,
    summed,
    within_bounds,
)
from factsweep.operators.estimates.means import between_facts
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
    whole: NDArray[np.bool_]


def agreed(
    pairs: pl.DataFrame, answers: pl.DataFrame, earlier: Callable[[str], pl.DataFrame]
) -> Agreed:
    """Read a control, a relation at a time; the tables are those of `control.controls`."""
    pairs = pairs.with_columns(pl.col("relation_id", "pair_id").cast(pl.String))
    pairs = pairs.sort("relation_id", "pair_id")
    asked = answers.select("prompt_id", pl.col("relation_id", "pair_id", "key").cast(pl.String))
    asked = asked.with_row_index()
    by_prompt = np.zeros((2, answers.height))
    full, whole = [], []
    for (relation_id,), mine in pairs.group_by("relation_id", maintain_order=True):
        rows = whole_facts(mine, earlier(str(relation_id)))
        n = rows.group_by("fact").len("n")
        hits = rows.select("fact", hits=n_matching(rows)).group_by("fact").agg(pl.sum("hits"))
        shares = n.join(hits, on="fact").filter(pl.col("n") > 1)
        of_fact = np.zeros(mine.height)
        of_fact[shares["fact"].to_numpy()] = shares.select(
            pl.col("hits") / (pl.col("n") * (pl.col("n") - 1))
        ).to_series()
        full.append(of_fact)
        whole.append(np.isin(np.arange(mine.height), shares["fact"].to_numpy()))
        here = asked.filter(relation_id=str(relation_id)).join(
            rows.select("prompt_id", other=pl.col("key").cast(pl.String)),
            on="prompt_id",
            maintain_order="left",
        )
        place = here["index"].to_numpy()
        by_prompt[0, place] = n_matching(here, keys=("other",))
        by_prompt[1, place] = n_matching(here, keys=("key", "other"))
    matches, both = by_prompt
    return Agreed(matches, both, np.concatenate(full), np.concatenate(whole))


def controlled_consist(
    sample: Crossed, matches: FloatArray, control: Agreed, *, seed: int
) -> Controlled:
    """Estimate Consist with a control."""
    n, size = sample.n_asked.astype(np.float64), sample.n_prompts.astype(np.float64)
    plain, pairs = consist(sample, matches), np.maximum(1.0, n * (n - 1) / 2)
    shares = summed(sample.fact, matches, sample.n_facts) / 2 / pairs
    counts = size >= 2
    if sample.is_all or plain.full_low is None or plain.full_high is None:
        return Controlled(plain, shares, None)
    weights = counts / counts.sum()
    here, asked = sample.sampled_weights(weights), sample.is_asked & counts
    fold = generator(seed, "pairs of prompts").permutation(sample.n_facts) % N_FOLDS
    known = summed(sample.fact, control.matches, sample.n_facts) / 2 / pairs
    more = np.where(control.whole & (n > 1), known - control.full, 0.0)
    level = control.full - group_means(sample.strata, control.full)
    slopes = _slopes(sample, shares, more, level, fold, asked)
    without = shares - slopes[:, 0] * more
    of_facts = slopes[:, 1] * level
    left = without - of_facts
    value = float(here @ left + weights @ of_facts)
    moments = _moments(sample, matches, control, slopes[:, 0])
    within, degrees = _within(sample, moments, left, asked)
    variance = float((here[asked] ** 2 * within).sum())
    if not sample.is_asked.all():
        between, degrees = between_facts(sample, left, weights)
        variance = variance * float(sample.is_asked.mean()) + between
    found = within_bounds(value, half_width(max(0.0, variance) + 4 * of_unseen(sample), degrees))
    assert found.full_low is not None
    assert found.full_high is not None
    narrower = (plain.full_high - plain.full_low) / (found.full_high - found.full_low)
    return Controlled(found, without, len(sample.fact) * narrower**2)


def _slopes(
    sample: Crossed,
    shares: FloatArray,
    more: FloatArray,
    level: FloatArray,
    fold: NDArray[np.int64],
    asked: NDArray[np.bool_],
) -> FloatArray:
    """The coefficients of k − K and of K for each fact."""
    stratum = sample.strata[asked]
    x = np.stack([more[asked], level[asked] - group_means(stratum, level[asked])], axis=1)
    y = shares[asked] - group_means(stratum, shares[asked])
    degrees = summed(fold[asked], np.ones(int(asked.sum())), N_FOLDS)
    slopes: FloatArray = cross_fitted(x, y, fold[asked], degrees)[fold]
    return slopes


def _moments(sample: Crossed, matches: FloatArray, control: Agreed, slope: FloatArray) -> Moments:
    """C, A and B of g for each fact."""
    own = np.where(control.whole, slope, 0.0)[sample.fact]
    sums = matches - own * control.matches
    squares = matches - 2 * own * control.both + own**2 * control.matches
    total, square, shared = (
        summed(sample.fact, each, sample.n_facts) / 2 for each in (sums, squares, sums**2 - squares)
    )
    disjoint = (total**2 - square) / 2 - shared
    return over_pairs(sample.n_asked.astype(np.float64), square, shared, disjoint)


def _within(
    sample: Crossed, moments: Moments, left: FloatArray, asked: NDArray[np.bool_]
) -> tuple[FloatArray, float]:
    """The variance of each asked fact's share, and its degrees of freedom."""
    n, size = sample.n_asked.astype(np.float64), sample.n_prompts.astype(np.float64)
    enough = n >= 4
    if enough.sum() >= asked.sum() / 2:
        return variance_of_share(moments, n, size, enough)[asked], float(enough.sum())
    stratum = sample.strata[asked]
    among = summed(stratum, np.ones(len(stratum)))[stratum]
    squares = (left[asked] - group_means(stratum, left[asked])) ** 2
    return squares * among / np.maximum(1.0, among - 1), float(asked.sum())

"""Means over the prompts of facts (Acc@1, the one-word ratio), and over their pairs (Consist)."""

from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.components import FEW, Components, components, template_level
from factsweep.operators.estimates.crossed import BoolArray, Crossed, FloatArray, spread, summed
from factsweep.operators.estimates.intervals import (
    Estimated,
    exactly,
    half_width,
    share_interval,
    within_bounds,
)
from factsweep.operators.matching.lemmas import contains

ONCE = "no fact was asked twice, so nothing says how far its answers vary"


def within_variance(
    sample: Crossed, values: FloatArray, weights: FloatArray, found: Components | None
) -> FloatArray:
    """The variance of Σ w · mean over the sampled prompts about that of the full run, by relation.

    A fact's sampled prompts are a simple random sample of its prompts, drawn for each fact by
    itself: its mean varies by (1/n − 1/N) s² (Cochran 1977, sections 2.6 and 5.4), without bias
    whatever the facts are. All facts together are asked alike in the templates: their part is taken
    out of s² (the residual of fact + template, over the degrees that it has left), and what is left
    of their imbalance is added: the templates' variance times Σ (what a template weighs in the
    sample − in the full run)² (`components.py`). Where a relation's templates were not compared,
    their variance in all relations is subtracted in place of their fit.

    All facts were asked; `weights` has what each weighs. Without components nothing is known of
    templates, and nothing taken out.
    """
    left = weights**2 * (sample.fact_means - 1 / sample.n_prompts)
    if found is None:
        return summed(sample.relation, left * spread(sample.fact, values, sample.n_facts))
    imbalance = template_level(sample, weights, (weights * sample.fact_means)[sample.fact])
    known, scale = _known(sample, found)
    effects = np.concatenate([fit.effects for fit in found.fits])[sample.in_template]
    without = values - np.where(known[sample.cell_relation], effects, 0.0)
    by_fact = left * spread(sample.fact, without, sample.n_facts)
    fitted = summed(sample.relation, by_fact) * scale + found.template * imbalance
    # Of a prompt's variance the templates' part, as a fact has each as often as it has names.
    share = (sample.n_prompts - sample.n_names) / np.maximum(1, sample.n_prompts - 1)
    alone = summed(sample.relation, by_fact) - found.template * (
        summed(sample.relation, left * share) - imbalance
    )
    return np.where(known, fitted, np.maximum(0.0, alone))


def _known(sample: Crossed, found: Components) -> tuple[FloatArray, FloatArray]:
    """Which relations' templates were compared well, and what their residuals lost to the fit."""
    degrees = summed(sample.relation, np.maximum(0.0, sample.n_asked - 1.0))
    lost = np.array([len(fit.effects) - 1.0 for fit in found.fits])
    known = np.array([fit.known for fit in found.fits]) & (degrees - lost >= FEW)
    return known, np.where(known, degrees / np.maximum(1.0, degrees - lost), 1.0)


class Mean(NamedTuple):
    """A mean over a sample, its variance about the full run's, and the variance's degrees.

    `variance` is null where nothing says how far a fact's answers vary.
    """

    value: float
    variance: float | None
    degrees: float

    @property
    def estimated(self) -> Estimated:
        """The mean with its interval."""
        if self.variance is None:
            return Estimated(self.value, None, None, ONCE)
        return within_bounds(self.value, half_width(self.variance, self.degrees))


def weighted_mean(sample: Crossed, values: FloatArray, weights: FloatArray) -> Estimated:
    """Estimate Σ weight · mean over the fact's prompts / Σ weight, with its interval.

    `values` are 0 or 1. Where only some facts were asked and none differs from another, the
    answers to a fact may be one answer: then facts are counted.
    """
    value, variance, degrees = found = measured(sample, values, weights)
    if sample.is_all:
        return exactly(value)
    if variance is None:
        return found.estimated
    n = len(sample.fact) if variance > 0 or sample.is_asked.all() else int(sample.is_asked.sum())
    return share_interval(value, variance, degrees, n=n, left=sample.left)


def measured(sample: Crossed, values: FloatArray, weights: FloatArray) -> Mean:
    """Estimate Σ weight · mean over the fact's prompts / Σ weight, with its variance.

    The estimate is the same mean over the sampled prompts, unbiased as every prompt of a fact has
    the same chance. Its variance is that of the answers about it by component (`within_variance`),
    and, where not all facts were asked, between facts.
    """
    share = weights / weights.sum()
    means = sample.mean_by_fact(values)
    here = sample.sampled_weights(share)
    value = float(here @ means)
    if sample.is_all:
        return Mean(value, 0.0, 0.0)
    found, asked = components(sample, values), sample.is_asked
    if found is None and asked.all():
        return Mean(value, None, 0.0)
    within = float(within_variance(sample.only(asked), values, here[asked], found).sum())
    degrees = 0.0 if found is None else found.degrees
    return Mean(value, *of_both_stages(sample, means, share, within, degrees))


def of_both_stages(
    sample: Crossed, means: FloatArray, share: FloatArray, within: float, degrees: float
) -> tuple[float | None, float]:
    """The variance of Σ share · mean of a fact about the full run, and its degrees of freedom.

    `within` is what comes of asking only some prompts of the asked facts, and `degrees` are those
    of it. Where only some facts were asked, their own means are known as well as they were; null:
    too few were asked to say how far facts differ.
    """
    if sample.is_asked.all():
        return within, degrees
    between, degrees = between_facts(sample, means, share)
    return (between + within * float(sample.is_asked.mean()) if degrees else None), degrees


def between_facts(sample: Crossed, means: FloatArray, share: FloatArray) -> tuple[float, float]:
    """The variance that comes of asking only some facts, and its degrees of freedom.

    Stratified by relation where two facts of each were asked (Cochran 1977, sections 5.4 and 10.3:
    the first of two stages, with the second stage's noise in the facts' means). A fact that weighs
    much pulls the mean to itself: its square is over the part of its variance that is left about
    the mean, 1 − 2p + Σp² with p its part of the weight (Horn, Horn and Duncan 1975), which is the
    divisor n − 1 where facts weigh alike.
    """
    variance, degrees = 0.0, 0.0
    for stratum in np.unique(sample.strata):
        mine = sample.strata == stratum
        asked = mine & sample.is_asked
        n = int(asked.sum())
        if n < 2:
            return 0.0, 0.0
        weight = share[mine].sum()
        part = share[asked] / share[asked].sum()
        kept = 1 - 2 * part + (part**2).sum()
        off = (part * (means[asked] - part @ means[asked])) ** 2 / kept
        variance += weight**2 * (1 - n / mine.sum()) * float(off.sum())
        degrees += max(1.0, (part**2).sum() ** 2 / (part**4).sum() - 1)
    return variance, degrees


TOO_FEW = "no fact was asked four times, so nothing says how far its consistency varies"
ALONE = "no fact has two prompts"


def consist(sample: Crossed, matches: FloatArray) -> Estimated:
    """Estimate Consist from how many of the fact's other sampled answers each answer matches.

    A fact's share of matching pairs among n sampled prompts is an unbiased estimate of that among
    all N (a U-statistic; Hoeffding 1948). Its variance about that is exact for a simple random
    sample without replacement. With m = n(n − 1)/2 pairs, M = N(N − 1)/2, and the means C of a
    pair, A of the product of two pairs that share a prompt, B of two that do not,

        C (1/m − 1/M) + A (2(n − 2)/m − 2(N − 2)/M)
          + B ((n − 2)(n − 3)/2m − (N − 2)(N − 3)/2M)

    All pairs of pairs of the sample give A and B without bias, from four prompts on; facts with
    fewer take the mean of their relation's, or of all.
    """
    n, size = sample.n_asked.astype(np.float64), sample.n_prompts.astype(np.float64)
    counts = size >= 2
    if not counts.any():
        return Estimated(None, None, None, ALONE)
    weights, shares = counts / counts.sum(), shares_of(sample, matches)
    here = sample.sampled_weights(weights)
    value = float(here @ shares)
    if sample.is_all:
        return exactly(value)
    asked, enough = sample.is_asked & counts, n >= 4
    within = np.full(sample.n_facts, value * (1 - value))
    if enough.any():
        within = variance_of_share(moments_of(sample, matches), n, size, enough)
    total = float((here[asked] ** 2 * within[asked]).sum())
    degrees = float(enough.sum() or asked.sum())
    variance, degrees = of_both_stages(sample, shares, weights, total, degrees)
    if variance is None:
        return Estimated(value, None, None, TOO_FEW)
    return share_interval(value, variance, degrees, n=float(asked.sum()), left=sample.left)


def shares_of(sample: Crossed, matches: FloatArray) -> FloatArray:
    """The share of matching pairs among the sampled prompts of each fact; of a single prompt 0."""
    shares: FloatArray = sample.mean_by_fact(matches) / np.maximum(1, sample.n_asked - 1)
    return shares


def moments_of(sample: Crossed, matches: FloatArray) -> FloatArray:
    """C, A and B of each fact (rows; facts are columns): means over its pairs, and pairs of these.

    `matches` has how many of the fact's other sampled answers each answer matches. A pair scores
    0 or 1, so that its square is the score itself.
    """
    total, shared = (
        summed(sample.fact, sums, sample.n_facts) / 2 for sums in (matches, matches**2 - matches)
    )
    n = sample.n_asked.astype(np.float64)
    pairs = n * (n - 1) / 2
    every = np.stack([pairs, pairs * (n - 2), pairs * (n - 2) * (n - 3) / 4])
    found = np.stack([total, shared, (total**2 - total) / 2 - shared])
    return np.divide(found, every, out=np.full_like(found, np.nan), where=every > 0)


def variance_of_share(
    moments: FloatArray, n: FloatArray, size: FloatArray, enough: BoolArray
) -> FloatArray:
    """The variance of each fact's share of matches, with C, A, B of the facts that have all."""
    common = moments[:, enough].mean(axis=1)
    own = np.where(enough, moments, common[:, None])
    # Of facts that were not asked there is none.
    with np.errstate(divide="ignore", invalid="ignore"):
        m, whole = n * (n - 1) / 2, size * (size - 1) / 2
        pair = 1 / m - 1 / whole
        shared = 2 * (n - 2) / m - 2 * (size - 2) / whole
        disjoint = (n - 2) * (n - 3) / (2 * m) - (size - 2) * (size - 3) / (2 * whole)
        variance = (np.stack([pair, shared, disjoint]) * own).sum(axis=0)
    known: FloatArray = np.nan_to_num(variance)
    return known


def n_matching(answers: pl.DataFrame) -> pl.Series:
    r"""How many other answers of the pair each answer matches, as `consist` has it: f64.

    >>> n_matching(pl.DataFrame({
    ...     "pair_id": ["t"] * 4, "key": ["\x1fa\x1f", "\x1fa\x1f", "\x1fa\x1fb\x1f", None]
    ... })).to_list()
    [2.0, 2.0, 2.0, 0.0]
    """
    rows = answers.select("pair_id", pl.col("key").cast(pl.String))
    sizes = rows.drop_nulls("key").group_by("pair_id", "key").agg(n=pl.len().cast(pl.Int64))
    same = sizes.select("pair_id", "key", n_matching=pl.col("n") - 1)
    key, other = pl.col("key"), pl.col("key_other")
    differing = sizes.join(sizes, on="pair_id", suffix="_other").filter(key != other)
    matching = differing.filter(contains(key, other) | contains(other, key))
    counts = pl.concat([same, matching.select("pair_id", "key", n_matching="n_other")])
    sums = counts.group_by("pair_id", "key").agg(pl.sum("n_matching"))
    joined = rows.join(sums, on=["pair_id", "key"], how="left", maintain_order="left")
    return joined["n_matching"].fill_null(0).cast(pl.Float64)

"""Means over the prompts of facts (Acc@1, the one-word ratio), and over their pairs (Consist)."""

from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates import intervals
from factsweep.operators.estimates.components import FEW, Components, split_variance, template_level
from factsweep.operators.estimates.crossed import (
    BoolArray,
    CrossedSample,
    FloatArray,
    spread,
    sum_by_group,
)
from factsweep.operators.matching.lemmas import contains

ONCE = "no fact was asked twice, so nothing says how far its answers vary"
TOO_FEW = "no fact was asked four times, so nothing says how far its consistency varies"
ALONE = "no fact has two prompts"


def within_variance(
    sample: CrossedSample, values: FloatArray, weights: FloatArray, parts: Components | None
) -> FloatArray:
    """The variance of Σ w · mean over the sampled prompts about that of the full run, by relation.

    A fact's sampled prompts are a simple random sample of its prompts, drawn for each fact by
    itself: its mean varies by (1/n − 1/N) s² (Cochran 1977, sections 2.6 and 5.4). All facts
    together are asked alike in the templates: their part is taken out of s² (the residual of fact +
    template, over its degrees), and the remaining imbalance is added: the templates' variance times
    Σ (a template's weight in the sample − in the full run)² (`components.py`). Where a relation's
    templates were not compared, their variance in all relations is subtracted in place of their
    fit; without components, nothing.

    All facts were asked; `weights` are theirs.
    """
    scale = weights**2 * (sample.fact_means - 1 / sample.n_prompts)
    if parts is None:
        return sum_by_group(sample.relation, scale * spread(sample.fact, values, sample.n_facts))
    imbalance = template_level(sample, weights, (weights * sample.fact_means)[sample.fact])
    # The relations whose templates were compared well, and the degrees that the fit took.
    degrees = sum_by_group(sample.relation, np.maximum(0.0, sample.n_asked - 1.0))
    fitted_degrees = np.array([len(fit.effects) - 1.0 for fit in parts.fits])
    is_fitted = np.array([fit.is_known for fit in parts.fits]) & (degrees - fitted_degrees >= FEW)
    correction = np.where(is_fitted, degrees / np.maximum(1.0, degrees - fitted_degrees), 1.0)
    effects = np.concatenate([fit.effects for fit in parts.fits])[sample.in_template]
    residuals = values - np.where(is_fitted[sample.cell_relation], effects, 0.0)
    by_fact = scale * spread(sample.fact, residuals, sample.n_facts)
    fitted = sum_by_group(sample.relation, by_fact) * correction + parts.template * imbalance
    # The templates' part of a prompt's variance, as a fact has each as often as it has names.
    share = (sample.n_prompts - sample.n_names) / np.maximum(1, sample.n_prompts - 1)
    unfitted = sum_by_group(sample.relation, by_fact) - parts.template * (
        sum_by_group(sample.relation, scale * share) - imbalance
    )
    return np.where(is_fitted, fitted, np.maximum(0.0, unfitted))


class Mean(NamedTuple):
    """A mean over a sample, its variance about the full run's, and the variance's degrees.

    `variance` is null where nothing says how far a fact's answers vary.
    """

    value: float
    variance: float | None
    degrees: float

    @property
    def estimate(self) -> intervals.IntervalEstimate:
        """The mean with its interval."""
        if self.variance is None:
            return intervals.IntervalEstimate(self.value, None, None, ONCE)
        return intervals.within_bounds(
            self.value, intervals.half_width(self.variance, self.degrees)
        )


def weighted_mean(
    sample: CrossedSample, values: FloatArray, weights: FloatArray
) -> intervals.IntervalEstimate:
    """Estimate Σ weight · mean over the fact's prompts / Σ weight, with its interval.

    `values` are 0 or 1. Where only some facts were asked and no prompts of a fact differ, the
    answers to a fact may be one answer: then facts are counted.
    """
    value, variance, degrees = mean = estimate_mean(sample, values, weights)
    if sample.is_all:
        return intervals.exact_estimate(value)
    if variance is None:
        return mean.estimate
    n = len(sample.fact) if variance > 0 or sample.is_asked.all() else int(sample.is_asked.sum())
    return intervals.share_interval(value, variance, degrees, n=n, left=sample.unsampled_share)


def estimate_mean(sample: CrossedSample, values: FloatArray, weights: FloatArray) -> Mean:
    """Estimate Σ weight · mean over the fact's prompts / Σ weight, with its variance.

    The estimate is the same mean over the sampled prompts, unbiased as every prompt of a fact has
    the same chance. Its variance is that of the answers by component (`within_variance`), and,
    where not all facts were asked, between facts.
    """
    share = weights / weights.sum()
    means = sample.mean_by_fact(values)
    sampled_share = sample.sampled_weights(share)
    value = float(sampled_share @ means)
    if sample.is_all:
        return Mean(value, 0.0, 0.0)
    parts, is_asked = split_variance(sample, values), sample.is_asked
    if parts is None and is_asked.all():
        return Mean(value, None, 0.0)
    by_relation = within_variance(
        sample.select_facts(is_asked), values, sampled_share[is_asked], parts
    )
    degrees = 0.0 if parts is None else parts.degrees
    return Mean(value, *of_both_stages(sample, means, share, float(by_relation.sum()), degrees))


def of_both_stages(
    sample: CrossedSample, means: FloatArray, share: FloatArray, within: float, degrees: float
) -> tuple[float | None, float]:
    """The variance of Σ share · mean of a fact about the full run, and its degrees of freedom.

    `within` is the variance of asking only some prompts of the asked facts, with its `degrees`.
    Null: too few facts were asked to say how far they differ.
    """
    if sample.is_asked.all():
        return within, degrees
    between, degrees = between_facts(sample, means, share)
    return (between + within * float(sample.is_asked.mean()) if degrees else None), degrees


def between_facts(
    sample: CrossedSample, means: FloatArray, share: FloatArray
) -> tuple[float, float]:
    """The variance of asking only some facts, and its degrees of freedom.

    Stratified by relation where two facts of each were asked (Cochran 1977, sections 5.4 and 10.3:
    the first of two stages, with the second stage's noise in the facts' means). A fact of large
    weight pulls the mean to itself: its square is over the part of its variance that remains about
    the mean, 1 − 2p + Σp² with p its part of the weight (Horn, Horn and Duncan 1975), which is the
    divisor n − 1 where facts weigh alike.
    """
    variance, degrees = 0.0, 0.0
    for stratum in np.unique(sample.strata):
        is_member = sample.strata == stratum
        is_sampled = is_member & sample.is_asked
        n = int(is_sampled.sum())
        if n < 2:
            return 0.0, 0.0
        part = share[is_sampled] / share[is_sampled].sum()
        remainder = 1 - 2 * part + (part**2).sum()
        deviation = means[is_sampled] - part @ means[is_sampled]
        squares = (part * deviation) ** 2 / remainder
        weight = share[is_member].sum()
        variance += weight**2 * (1 - n / is_member.sum()) * float(squares.sum())
        degrees += max(1.0, (part**2).sum() ** 2 / (part**4).sum() - 1)
    return variance, degrees


def consist(sample: CrossedSample, matches: FloatArray) -> intervals.IntervalEstimate:
    """Estimate Consist from the number of the fact's other sampled answers each answer matches.

    A fact's share of matching pairs among n sampled prompts is an unbiased estimate of that among
    all N (a U-statistic; Hoeffding 1948). Its variance about that is exact for a simple random
    sample without replacement. With m = n(n − 1)/2 pairs, M = N(N − 1)/2, and the means C of a
    pair, A of the product of two pairs that share a prompt, B of two that do not,

        C (1/m − 1/M) + A (2(n − 2)/m − 2(N − 2)/M)
          + B ((n − 2)(n − 3)/2m − (N − 2)(N − 3)/2M)

    All pairs of pairs of the sample give A and B without bias, from four prompts on; facts with
    fewer take the mean over facts.
    """
    n, size = sample.n_asked.astype(np.float64), sample.n_prompts.astype(np.float64)
    has_pairs = size >= 2
    if not has_pairs.any():
        return intervals.IntervalEstimate(None, None, None, ALONE)
    weights, shares = has_pairs / has_pairs.sum(), shares_of(sample, matches)
    sampled_weights = sample.sampled_weights(weights)
    value = float(sampled_weights @ shares)
    if sample.is_all:
        return intervals.exact_estimate(value)
    is_asked, is_enough = sample.is_asked & has_pairs, n >= 4
    within = np.full(sample.n_facts, value * (1 - value))
    if is_enough.any():
        within = variance_of_share(moments_of(sample, matches), n, size, is_enough)
    total = float((sampled_weights[is_asked] ** 2 * within[is_asked]).sum())
    degrees = float(is_enough.sum() or is_asked.sum())
    variance, degrees = of_both_stages(sample, shares, weights, total, degrees)
    if variance is None:
        return intervals.IntervalEstimate(value, None, None, TOO_FEW)
    return intervals.share_interval(
        value, variance, degrees, n=float(is_asked.sum()), left=sample.unsampled_share
    )


def shares_of(sample: CrossedSample, matches: FloatArray) -> FloatArray:
    """The share of matching pairs among each fact's sampled prompts; 0 for a single prompt."""
    shares: FloatArray = sample.mean_by_fact(matches) / np.maximum(1, sample.n_asked - 1)
    return shares


def moments_of(sample: CrossedSample, matches: FloatArray) -> FloatArray:
    """C, A and B (rows) of each fact (columns), as `consist` has them."""
    # A pair scores 0 or 1, so that its square is the score itself.
    total, shared = (
        sum_by_group(sample.fact, sums, sample.n_facts) / 2
        for sums in (matches, matches**2 - matches)
    )
    n = sample.n_asked.astype(np.float64)
    pairs = n * (n - 1) / 2
    counts = np.stack([pairs, pairs * (n - 2), pairs * (n - 2) * (n - 3) / 4])
    sums = np.stack([total, shared, (total**2 - total) / 2 - shared])
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def variance_of_share(
    moments: FloatArray, n: FloatArray, size: FloatArray, is_enough: BoolArray
) -> FloatArray:
    """The variance of each fact's share of matches, with C, A, B of the facts that have all."""
    common = moments[:, is_enough].mean(axis=1)
    of_fact = np.where(is_enough, moments, common[:, None])
    # Facts without a sampled prompt have no variance.
    with np.errstate(divide="ignore", invalid="ignore"):
        n_pairs, n_full = n * (n - 1) / 2, size * (size - 1) / 2
        pair = 1 / n_pairs - 1 / n_full
        shared = 2 * (n - 2) / n_pairs - 2 * (size - 2) / n_full
        disjoint = (n - 2) * (n - 3) / (2 * n_pairs) - (size - 2) * (size - 3) / (2 * n_full)
        variance = (np.stack([pair, shared, disjoint]) * of_fact).sum(axis=0)
    variances: FloatArray = np.nan_to_num(variance)
    return variances


def n_matching(answers: pl.DataFrame) -> pl.Series:
    r"""The number of other answers of the pair that each answer matches, as in `consist`: f64.

    >>> n_matching(pl.DataFrame({
    ...     "pair_id": ["t"] * 4, "key": ["\x1fa\x1f", "\x1fa\x1f", "\x1fa\x1fb\x1f", None]
    ... })).to_list()
    [2.0, 2.0, 2.0, 0.0]
    """
    rows = answers.select("pair_id", pl.col("key").cast(pl.String))
    sizes = rows.drop_nulls("key").group_by("pair_id", "key").agg(n=pl.len().cast(pl.Int64))
    equal = sizes.select("pair_id", "key", n_matching=pl.col("n") - 1)
    key, other = pl.col("key"), pl.col("key_other")
    differing = sizes.join(sizes, on="pair_id", suffix="_other").filter(key != other)
    matching = differing.filter(contains(key, other) | contains(other, key))
    counts = pl.concat([equal, matching.select("pair_id", "key", n_matching="n_other")])
    sums = counts.group_by("pair_id", "key").agg(pl.sum("n_matching"))
    joined = rows.join(sums, on=["pair_id", "key"], how="left", maintain_order="left")
    return joined["n_matching"].fill_null(0).cast(pl.Float64)

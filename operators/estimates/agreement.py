"""Consist from a sample: the share of pairs of a fact's prompts whose answers match."""

import numpy as np
import polars as pl

from factsweep.operators.estimates.crossed import BoolArray, Crossed, FloatArray
from factsweep.operators.estimates.groups import summed
from factsweep.operators.estimates.intervals import Estimated, exactly, share_interval
from factsweep.operators.estimates.means import of_both_stages
from factsweep.operators.matching.lemmas import contains

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

"""Scores of queries, less what an earlier run's scores say of them.

The score y of a query becomes y − b (x − X): x is what the earlier run scored there, X its mean
over all queries of the relation. Over all of them the second term is 0, so that the mean of what is
left is that of y, and varies less where y goes with x: the regression estimator (Cochran 1977,
chapter 7; Särndal, Swensson and Wretman 1992, section 6.3). The coefficient of each fifth of the
queries is fitted to the other fifths (cross-fitting, Chernozhukov et al. 2018) and shrunk, as for
prompts (`control.py`).
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from factsweep.operators.estimates.controls.control import N_FOLDS, cross_fitted
from factsweep.operators.estimates.crossed import FloatArray, summed
from factsweep.operators.estimates.stratified import By, Means, means
from factsweep.operators.seeds import generator


def controlled_means(
    scores: pl.DataFrame,
    earlier: pl.DataFrame,
    names: Sequence[str],
    sizes: pl.DataFrame,
    *,
    by: By,
    seed: int,
) -> Means | None:
    """`stratified.means` of what is left of the scores, as `less_foreseen` has it.

    Two further queries whose answer changed are added to the variance (Agresti and Coull 1998),
    so that a sample in which nothing changed has an interval, too.
    """
    left = less_foreseen(scores, earlier, names, seed=seed)
    found = means(left.select("relation_id", *names), sizes, by=by)
    if found is None or found.covariance is None:
        return found
    return found._replace(covariance=found.covariance + found.unseen * np.eye(len(names)))


def less_foreseen(
    scores: pl.DataFrame, earlier: pl.DataFrame, names: Sequence[str], *, seed: int
) -> pl.DataFrame:
    """The scores of asked queries, less what an earlier run's say of them.

    Both have relation_id, pair_id and a column for each of `names`: `scores` a row for each query
    that was asked, `earlier` one for each that the earlier run answered. A query that it has not
    answered keeps its score.

    >>> queries = {"relation_id": ["P1"] * 12, "pair_id": [f"q{n:02}" for n in range(12)]}
    >>> earlier = pl.DataFrame({**queries, "f": [0.0, 0.5, 1.0] * 4})
    >>> asked = earlier[:8].with_columns(f=pl.col("f") / 2 + 0.25)
    >>> less_foreseen(asked, earlier, ["f"], seed=1)["f"].round(6).unique().to_list()
    [0.5]
    """
    ids = [pl.col("relation_id").cast(pl.String), pl.col("pair_id").cast(pl.String)]
    fold = generator(seed, "folds").permutation(earlier.height) % N_FOLDS
    known = earlier.select(*ids, *names).sort("relation_id", "pair_id")
    known = known.with_columns(fold=pl.Series(fold, dtype=pl.Int64))
    rows = scores.with_columns(ids)
    both = rows.join(known, on=["relation_id", "pair_id"], suffix="_known", maintain_order="left")
    foreseen = [_foreseen(both, known, name).alias(f"{name}_foreseen") for name in names]
    found = known.select("relation_id", "pair_id", *foreseen)
    rows = rows.join(found, on=["relation_id", "pair_id"], how="left", maintain_order="left")
    return rows.with_columns(
        pl.col(name) - pl.col(f"{name}_foreseen").fill_null(0.0) for name in names
    ).select(scores.columns)


def _foreseen(both: pl.DataFrame, known: pl.DataFrame, name: str) -> pl.Series:
    """How much more each query is expected to score than the others of its relation; sums to 0."""
    y, x = (_about_relation(both, column) for column in (name, f"{name}_known"))
    fold = both["fold"].to_numpy()
    degrees = summed(fold, np.ones(len(fold)), N_FOLDS)
    slopes = cross_fitted(x[:, None], y, fold, degrees)[:, 0]
    more = known.with_columns(more=_about_relation(known, name) * slopes[known["fold"].to_numpy()])
    return pl.Series(_about_relation(more, "more"))


def _about_relation(rows: pl.DataFrame, name: str) -> FloatArray:
    """The values less the mean of their relation."""
    centred = pl.col(name).cast(pl.Float64) - pl.col(name).mean().over("relation_id")
    return rows.select(centred).to_series().to_numpy()

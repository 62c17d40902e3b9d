"""Means over queries from a sample that takes some of each relation's.

Source: Cochran 1977, chapter 5 (stratified random sampling, without replacement).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.controls.control import N_FOLDS, cross_fitted
from factsweep.operators.estimates.crossed import (
    Estimated,
    FloatArray,
    half_width,
    summed,
    within_bounds,
)
from factsweep.operators.estimates.shares import unseen
from factsweep.operators.seeds import generator

By = Literal["relation", "query"]

MISSING = "no query of some relations was asked"
SINGLE = "no relation was asked two queries, so nothing says how far they differ"


class Means(NamedTuple):
    """Weighted means of several scores from 0 to 1, the covariance of their errors, its degrees.

    `covariance` is null where no relation has two queries that were asked. `unseen` is the least
    variance that is believed: that of two further queries that score 1 in place of 0, or 0 in place
    of 1 (Agresti and Coull 1998), so that scores that are all alike have an interval, too.
    """

    values: FloatArray
    covariance: FloatArray | None
    degrees: int
    unseen: float

    def mean(self, column: int) -> Estimated:
        """The mean of one score, with its interval."""
        return self.combined(float(self.values[column]), np.eye(len(self.values))[column])

    def combined(self, value: float, gradient: FloatArray) -> Estimated:
        """A function of the means, from its value and derivatives there (the delta method)."""
        if self.covariance is None:
            return Estimated(value, None, None, SINGLE)
        variance = float(gradient @ self.covariance @ gradient)
        least = self.unseen * float(gradient @ gradient)
        return within_bounds(value, half_width(max(variance, least), self.degrees))


def means(scores: pl.DataFrame, sizes: pl.DataFrame, *, by: By) -> Means | None:
    """Estimate means over queries from the scores of those that were asked.

    `scores` has relation_id and a column for each score; `sizes` relation_id and n, the queries of
    the full run. Relations weigh alike (`by="relation"`) or as their queries (`by="query"`). Null
    where a relation has no score.

    >>> scores = pl.DataFrame({"relation_id": ["a", "a", "b", "b"], "f": [1.0, 0.0, 1.0, 1.0]})
    >>> sizes = pl.DataFrame({"relation_id": ["a", "b"], "n": [2, 6]})
    >>> [float(means(scores, sizes, by=each).values[0]) for each in ("relation", "query")]
    [0.75, 0.875]
    """
    names = [name for name in scores.columns if name != "relation_id"]
    named = scores.with_columns(pl.col("relation_id").cast(pl.String))
    groups = named.partition_by("relation_id", as_dict=True)
    known = sizes.with_columns(pl.col("relation_id").cast(pl.String)).sort("relation_id")
    n = known["n"].to_numpy().astype(np.float64)
    weights = n / n.sum() if by == "query" else np.full(len(n), 1 / len(n))
    parts = [groups.get((each,)) for each in known["relation_id"]]
    if any(part is None for part in parts):
        return None
    tables = [part.select(names).to_numpy() for part in parts if part is not None]
    values = weights @ [table.mean(axis=0) for table in tables]
    degrees = sum(len(table) - 1 for table in tables)
    n_asked = scores.height
    least = unseen(n_asked, max(0.0, 1 - n_asked / n.sum()))
    return Means(values, _covariance(tables, n, weights), degrees, least)


def _covariance(tables: list[FloatArray], n: FloatArray, weights: FloatArray) -> FloatArray | None:
    """Σ w² (1 − n/N) S / n; a relation with a single query takes the S of all."""
    enough = [table for table in tables if len(table) > 1]
    inside = [np.cov(table.T).reshape(table.shape[1], -1) for table in enough]
    left = [1 - len(table) / whole for table, whole in zip(tables, n, strict=True)]
    if not any(left):
        return np.zeros((tables[0].shape[1],) * 2)
    if not inside:
        return None
    common: FloatArray = np.average(inside, axis=0, weights=[len(table) - 1 for table in enough])
    total = np.zeros_like(common)
    own = iter(inside)
    for table, weight, share in zip(tables, weights, left, strict=True):
        spread = next(own) if len(table) > 1 else common
        total += weight**2 * max(0.0, share) * spread / len(table)
    return total


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

    The score y of a query becomes y − b (x − X): x is what the earlier run scored there, X its mean
    over all queries of the relation: the regression estimator (Cochran 1977, chapter 7; Särndal,
    Swensson and Wretman 1992, section 6.3). The coefficient of each fifth of the queries is fitted
    to the other fifths (cross-fitting, Chernozhukov et al. 2018) and shrunk, as in `control.py`.

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

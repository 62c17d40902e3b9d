"""Means over queries from a sample that takes some of each relation's.

Source: Cochran 1977, chapter 5 (stratified random sampling, without replacement).
"""

from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.crossed import (
    Estimated,
    FloatArray,
    half_width,
    within_bounds,
)
from factsweep.operators.estimates.shares import unseen

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

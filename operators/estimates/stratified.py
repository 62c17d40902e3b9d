"""Means over queries from a sample that takes some of each relation's.

Source: Cochran 1977, chapter 5 (stratified random sampling, without replacement).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.controls.control import N_FOLDS, foreseen
from factsweep.operators.estimates.crossed import FloatArray, IntArray
from factsweep.operators.estimates.groups import centred, group_means
from factsweep.operators.estimates.intervals import Estimated, half_width, unseen, within_bounds
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
    """
    names = [name for name in scores.columns if name != "relation_id"]
    text = pl.col("relation_id").cast(pl.String)
    known = sizes.with_columns(text).sort("relation_id").with_row_index("relation")
    rows = scores.with_columns(text).join(known, on="relation_id", maintain_order="left")
    relation, n = rows["relation"].to_numpy().astype(np.int64), known["n"].to_numpy().astype(float)
    asked = np.bincount(relation, minlength=len(n))
    if not asked.all():
        return None
    weights = n / n.sum() if by == "query" else np.full(len(n), 1 / len(n))
    columns = rows.select(pl.col(names).cast(pl.Float64)).to_numpy().T
    values = np.stack([group_means(relation, each) for each in columns]) @ weights
    off = np.stack([centred(relation, each) for each in columns], axis=1)
    least = unseen(len(relation), max(0.0, 1 - len(relation) / n.sum()))
    factor = weights**2 * np.maximum(0.0, 1 - asked / n) / asked
    return Means(values, _covariance(off, relation, factor), int((asked - 1).sum()), least)


def _covariance(off: FloatArray, relation: IntArray, factor: FloatArray) -> FloatArray | None:
    """Σ factor · S over relations; one with a single query takes the S of all.

    `off` are the scores (queries × scores) less the means of their relation.
    """
    degrees = np.bincount(relation) - 1
    if factor.any() and not degrees.any():
        return None
    own = np.where(degrees > 0, factor, 0.0) / np.maximum(1, degrees)
    common = factor[degrees == 0].sum() / max(1, degrees.sum())
    found: FloatArray = (off * (own[relation] + common)[:, None]).T @ off
    return found


def controlled_means(
    scores: pl.DataFrame, earlier: pl.DataFrame, sizes: pl.DataFrame, *, by: By, seed: int
) -> Means | None:
    """`stratified.means` of what is left of the scores, as `less_foreseen` has it.

    The score y of a query becomes y − b (x − X): x is what the earlier run scored there, X its mean
    over all queries of the relation: the regression estimator (Cochran 1977, chapter 7; Särndal,
    Swensson and Wretman 1992, section 6.3). The coefficient b is fitted and shrunk as in
    `control.py`, and two further queries whose answer changed are in the variance as there.
    """
    names = [name for name in scores.columns if name not in ("relation_id", "pair_id")]
    left = less_foreseen(scores, earlier, names, seed=seed)
    found = means(left.drop("pair_id"), sizes, by=by)
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
    ids = pl.col("relation_id", "pair_id").cast(pl.String)
    fold = generator(seed, "folds").permutation(earlier.height) % N_FOLDS
    known = earlier.select(ids, *names).sort("relation_id", "pair_id")
    stratum = known["relation_id"].rank("dense").to_numpy().astype(np.int64) - 1
    places, on = known.select(ids).with_row_index("place"), ["relation_id", "pair_id"]
    place = scores.select(ids).join(places, on=on, how="left", maintain_order="left")["place"]
    there, asked = place.is_not_null(), place.drop_nulls().to_numpy().astype(np.int64)
    less = {}
    for name in names:
        y, x = (each[name].cast(pl.Float64).to_numpy() for each in (scores.filter(there), known))
        more = foreseen(y, x, asked, stratum, fold)
        foretold = np.zeros(scores.height)
        foretold[there.to_numpy()] = centred(stratum, more)[asked]
        less[name] = pl.col(name) - pl.Series(foretold)
    return scores.with_columns(ids).with_columns(**less)

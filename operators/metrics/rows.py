"""From the terms of pairs to rows of the metrics table: over everything, and over each relation."""

import polars as pl

from operators.metrics.belief import BELIEF, Counts, Row
from operators.metrics.bootstrap import Estimate, bootstrap_ratio

_TERMS = ("numerator", "denominator")


def ratio_rows(
    metric: str, terms: pl.DataFrame, counts: Counts, *, seed: int, n_rounds: int
) -> list[Row]:
    """Give the rows of a ratio with its interval, from the terms of its pairs (`terms.TERMS`)."""
    return counts.rows(metric, bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds))


def plain_rows(
    metric: str, sums: pl.DataFrame, counts: Counts, variant: str | None = None
) -> list[Row]:
    """Give the rows of a ratio without interval; `sums`: relation_id, numerator, denominator.

    A relation is measured by its own sums, everything by the sums of all. A denominator of 0 makes
    a null.

    >>> sums = pl.DataFrame({
    ...     "relation_id": ["P1", "P2"], "numerator": [1.0, 1.0], "denominator": [1.0, 3.0]
    ... })
    >>> [row.value for row in plain_rows("x", sums, Counts({"P1": 1, "P2": 3}, {}))]
    [0.5, 1.0, 0.3333333333333333]
    """
    relation = pl.col("relation_id").cast(pl.String)
    by_relation = sums.group_by(relation).agg(pl.sum(*_TERMS)).sort(relation)
    overall = by_relation.select(pl.lit(None, pl.String).alias("relation_id"), pl.sum(*_TERMS))
    values = pl.concat([overall, by_relation]).select("relation_id", _value())
    found = dict(values.iter_rows())
    relations = [None, *sorted(counts.n.keys() | counts.n_failed.keys())]
    return [_row(metric, found.get(each), each, counts, variant) for each in relations]


def table(rows: list[Row]) -> pl.DataFrame:
    """The rows as a table of the schema BELIEF."""
    return pl.DataFrame(rows, schema=BELIEF, orient="row")


def _value() -> pl.Expr:
    numerator, denominator = pl.col("numerator"), pl.col("denominator")
    return pl.when(denominator > 0).then(numerator / denominator).alias("value")


def _row(
    metric: str, value: float | None, relation: str | None, counts: Counts, variant: str | None
) -> Row:
    return counts.row(metric, Estimate(value, None, None), relation, variant)

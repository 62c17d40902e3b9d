"""Metrics that are a ratio of two sums, and the two terms that a pair adds to them."""

import polars as pl

from factsweep.operators.schemas import schema

TERMS = schema("relation_id text, pair_id text, numerator float, denominator float")


def pair_terms(rows: pl.DataFrame, numerator: pl.Expr, denominator: pl.Expr) -> pl.DataFrame:
    """Aggregate each pair of `rows` to its terms: one row per pair, with the columns of TERMS.

    Ids become text and the rows are sorted by them, so that neither the type of an id nor the
    order of the rows changes a later sum or draw.

    >>> rows = pl.DataFrame({
    ...     "relation_id": ["P1", "P1", "P1"], "pair_id": ["t2", "t1", "t1"], "hit": [1, 0, 1]
    ... })
    >>> pair_terms(rows, pl.sum("hit"), pl.len()).rows()
    [('P1', 't1', 1.0, 2.0), ('P1', 't2', 1.0, 1.0)]
    """
    return (
        rows.group_by("relation_id", "pair_id")
        .agg(numerator=numerator, denominator=denominator)
        .select(pl.col(name).cast(dtype) for name, dtype in TERMS.items())
        .sort("relation_id", "pair_id")
    )


def ratio(terms: pl.DataFrame) -> float | None:
    """Divide the sum of the numerators by that of the denominators; None where that is 0."""
    numerator, denominator = terms.select(pl.sum("numerator", "denominator")).row(0)
    return float(numerator / denominator) if denominator else None

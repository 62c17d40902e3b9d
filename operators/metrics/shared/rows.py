"""Rows of the metrics table, over everything and each relation; ratios of sums and their terms."""

from typing import NamedTuple

import polars as pl

from factsweep.operators.metrics.shared.bootstrap import (
    UNDEFINED,
    Bootstrapped,
    Estimate,
    bootstrap_ratio,
)
from factsweep.operators.schemas import SETTING, columns, schema

ROWS = columns("metrics", *SETTING[:3])
_ROWS = pl.len()


class Row(NamedTuple):
    """One row of the table ROWS."""

    variant: str | None
    slice: str | None
    metric: str
    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    n_failed: int


class Counts(NamedTuple):
    """Prompts that entered the numbers, and prompts that failed, per relation."""

    n: dict[str, int]
    n_failed: dict[str, int]

    def row(
        self,
        metric: str,
        estimate: Estimate,
        relation: str | None = None,
        variant: str | None = None,
        part: str | None = None,
    ) -> Row:
        """Give the row of a metric over one relation, or over all (None): the slice `part`."""
        counts = (
            sum(each.values()) if relation is None else each.get(relation, 0) for each in self
        )
        name = part if relation is None else f"relation={relation}"
        return Row(variant, name, metric, *estimate, *counts)

    def rows(
        self, metric: str, bootstrapped: Bootstrapped, variant: str | None = None
    ) -> list[Row]:
        """Give the rows of a metric over all relations and over each."""
        slices = (
            self.row(metric, bootstrapped.by_relation.get(relation, UNDEFINED), relation, variant)
            for relation in sorted(self.n.keys() | self.n_failed.keys())
        )
        return [self.row(metric, bootstrapped.overall, variant=variant), *slices]


def counted(
    answers: pl.DataFrame, n_failed: pl.DataFrame | None = None, n: pl.Expr = _ROWS
) -> Counts:
    """Count `answers` per relation, a row each or `n`; `n_failed` has relation_id and n_failed.

    >>> answers = pl.DataFrame({"relation_id": ["P1", "P1", "P2"]})
    >>> counted(answers, pl.DataFrame({"relation_id": ["P2"], "n_failed": [5]}))
    Counts(n={'P1': 2, 'P2': 1}, n_failed={'P2': 5})
    """
    there = _by_relation(answers.group_by("relation_id").agg(n=n), "n")
    if n_failed is None:
        return Counts(there, {})
    failed = n_failed.group_by("relation_id").agg(pl.sum("n_failed"))
    return Counts(there, _by_relation(failed, "n_failed"))


def counted_pairs(asked: pl.DataFrame, scored: pl.DataFrame) -> Counts:
    """Count per relation the pairs of `asked` that are in `scored`, and those that are not.

    Both have pair_id, one row per pair; `asked` has relation_id, too.

    >>> asked = pl.DataFrame({"relation_id": ["P1", "P1", "P2"], "pair_id": ["a", "b", "c"]})
    >>> counted_pairs(asked, pl.DataFrame({"pair_id": ["a", "b"]}))
    Counts(n={'P1': 2, 'P2': 0}, n_failed={'P1': 0, 'P2': 1})
    """
    found = pl.col("pair_id").is_in(scored["pair_id"].implode())
    counts = asked.group_by("relation_id").agg(n=found.sum(), n_failed=(~found).sum())
    return Counts(_by_relation(counts, "n"), _by_relation(counts, "n_failed"))


def ratio_rows(
    metric: str, terms: pl.DataFrame, counts: Counts, *, seed: int, n_rounds: int
) -> list[Row]:
    """Give the rows of a ratio with its interval, from the terms of its pairs (TERMS)."""
    return counts.rows(metric, bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds))


def plain_rows(
    metric: str, sums: pl.DataFrame, counts: Counts, variant: str | None = None
) -> list[Row]:
    """Give the rows of a ratio without interval; `sums`: relation_id, numerator, denominator.

    >>> terms = {"numerator": [1.0, 1.0], "denominator": [1.0, 3.0]}
    >>> sums = pl.DataFrame({"relation_id": ["P1", "P2"], **terms})
    >>> [row.value for row in plain_rows("x", sums, Counts({"P1": 1, "P2": 3}, {}))]
    [0.5, 1.0, 0.3333333333333333]
    """
    relation, terms = pl.col("relation_id").cast(pl.String), pl.sum("numerator", "denominator")
    by_relation = sums.group_by(relation).agg(terms).sort(relation)
    overall = by_relation.select(pl.lit(None, pl.String).alias("relation_id"), terms)
    value = pl.when(pl.col("denominator") > 0).then(pl.col("numerator") / pl.col("denominator"))
    found = dict(pl.concat([overall, by_relation]).select("relation_id", value).iter_rows())
    return [
        counts.row(metric, Estimate(found.get(each)), each, variant)
        for each in (None, *sorted(counts.n.keys() | counts.n_failed.keys()))
    ]


def table(rows: list[Row]) -> pl.DataFrame:
    """The rows as a table of the schema ROWS."""
    return pl.DataFrame(rows, schema=ROWS, orient="row")


def _by_relation(counts: pl.DataFrame, column: str) -> dict[str, int]:
    texts = counts.select(pl.col("relation_id").cast(pl.String), column).sort("relation_id")
    return dict(texts.iter_rows())


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

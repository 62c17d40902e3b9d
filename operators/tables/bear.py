"""The tables of BEAR: by template, by relation, by domain and cardinality."""

from collections.abc import Mapping

import polars as pl

from factsweep.operators.metrics.bear import METRICS
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared import pivot
from factsweep.operators.tables.shared.numbers import SHARE, shares_interval

HEADINGS = headings(METRICS)
_INTERVAL = shares_interval("95 % interval")
_TEXT = SHARE.column_with_dashes(pl.col("value"))


def headline(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per model: BEAR score with its interval, the accuracy of each template, Consist."""
    overall = metrics.filter(pl.col("slice").is_null())
    by_template = metrics.filter(pl.col("slice").str.contains("^template=[0-9]+$"))
    cells = pl.concat(
        [
            overall.with_columns(heading=pl.col("metric").replace_strict(HEADINGS, default=None)),
            by_template.with_columns(heading=pl.col("slice").str.replace("=", " ", literal=True)),
        ]
    ).with_columns(text=_TEXT)
    of_score = overall.filter(metric="bear_score")
    counts = of_score.select(*SETTING, _INTERVAL, instances="n", failed="n_failed")
    names = by_template["slice"].unique(maintain_order=True)
    headings_in_order = [*HEADINGS.values(), *(name.replace("=", " ") for name in names)]
    table = pivot.pivot(cells.drop_nulls("heading"), SETTING, headings_in_order)
    return pivot.join_columns(table, counts, SETTING)


def by_relation(metrics: pl.DataFrame, labels: Mapping[str, str]) -> pl.DataFrame:
    """One row per relation, the best first: BEAR score and its interval."""
    rows = pivot.select_relations(metrics, labels).filter(metric="bear_score")
    name = HEADINGS["bear_score"]
    table = rows.select(*SETTING, "ID", "Label", _TEXT.alias(name), _INTERVAL, instances="n")
    return pivot.sort_relations(table, SETTING, rows, best_first=True)


def by_group(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per domain and cardinality: BEAR score, its interval and the instances."""
    rows = metrics.filter(
        pl.col("slice").str.contains("^(domain|cardinality)="), metric="bear_score"
    )
    name = HEADINGS["bear_score"]
    columns = (*SETTING, _TEXT.alias(name), _INTERVAL)
    return rows.select(pl.col("slice").alias("group"), *columns, instances="n")


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The same numbers for a narrow screen."""
    return pivot.card(metrics, METRICS, SHARE, row_variants=())

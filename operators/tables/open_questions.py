"""The tables of open questions: the states of answers, by grader and by part."""

from collections.abc import Sequence

import polars as pl

from factsweep.operators.matching.verdicts import STATES
from factsweep.operators.metrics.agreement import KAPPA
from factsweep.operators.metrics.agreement import METRICS as AGREEMENT
from factsweep.operators.metrics.belief.belief import METRICS as BELIEF
from factsweep.operators.metrics.noise import CUT_SHARE, FLIP_RATE
from factsweep.operators.metrics.open_questions import METRICS
from factsweep.operators.metrics.pass_at_k import METRICS as PASS
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared import pivot
from factsweep.operators.tables.shared.numbers import COUNT, DASH, SHARE, shares_interval

SHOWN = (*METRICS, *PASS, *AGREEMENT, *BELIEF, CUT_SHARE, FLIP_RATE)
HEADINGS = headings(SHOWN)
_INTERVAL = "Correct, 95 % interval"
_NO_VERDICT = "no_verdict"
_PARTS = "^(popularity|sample|answer_type)="


def headline(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per model, setting and variant, as texts; a grader has rows of its own."""
    is_kappa = pl.col("metric") == KAPPA.name
    return _table(metrics.filter(pl.col("slice").is_null(), ~pivot.is_kind(), ~is_kappa), SETTING)


def select_parts(metrics: pl.DataFrame) -> pl.DataFrame:
    """The rows of popularity deciles, samples of the set and types of answers."""
    return metrics.filter(pl.col("slice").str.contains(_PARTS))


def parts(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per part of `select_parts`: the column `part`."""
    return _table(rows.rename({"slice": "part"}), [*SETTING, "part"])


def agreement(metrics: pl.DataFrame, confusion: pl.DataFrame) -> pl.DataFrame:
    """One row per two graders and state of the first: κ, and the answers by state of the other."""
    names = {state: state.replace("_", " ") for state in (*STATES, _NO_VERDICT)}
    states = {
        name: pl.col(name).fill_null(_NO_VERDICT).replace(names)
        for name in ("state", "other_state")
    }
    cells = confusion.with_columns(**states, text=COUNT.column(pl.col("n")))
    cells = cells.with_columns(heading=pl.format("other: {}", "other_state"))
    keys = [*SETTING, "grader", "other_grader", "state"]
    headings = [f"other: {name}" for name in names.values()]
    table = pivot.pivot(cells, keys, headings, missing="0")
    of_pair = pl.concat_str(
        "variant",
        pl.format("grader={},other={}", "grader", "other_grader"),
        separator=",",
        ignore_nulls=True,
    )
    kappa = metrics.filter(metric=KAPPA.name).select(
        *SETTING[:3],
        pair="variant",
        κ=SHARE.column_with_dashes(pl.col("value")),
        interval=SHARE.interval().fill_null(DASH),
    )
    table = pivot.join_columns(table.with_columns(pair=of_pair), kappa, [*SETTING[:3], "pair"])
    counts = [heading for heading in headings if heading in table.columns]
    return table.select(
        *keys[:-1], "κ", pl.col("interval").alias("κ, 95 % interval"), "state", *counts
    )


def _table(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    text = pl.concat_str(SHARE.column_with_dashes(pl.col("value")), pivot.spread(rows, SHARE))
    heading = pl.col("metric").replace_strict(HEADINGS, default=None)
    cells = rows.with_columns(text=text, heading=heading)
    interval = shares_interval(_INTERVAL)
    of_correct = rows.filter(metric="correct")
    counts = of_correct.select(*keys, interval, prompts="n", failed="n_failed")
    table = pivot.join_columns(pivot.pivot(cells, keys, HEADINGS.values()), counts, keys)
    first, *columns = (heading for heading in HEADINGS.values() if heading in table.columns)
    return table.select(*keys, first, _INTERVAL, *columns, "prompts", "failed")


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The same numbers for a narrow screen: one row per metric and grader."""
    return pivot.card(metrics, SHOWN, SHARE, row_variants=("grader", "other", "draw", "prompts"))

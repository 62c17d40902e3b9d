"""The headline table of BELIEF-ICL (Tables 3, 4, 7): one row per setting, a column per metric."""

import polars as pl

from factsweep.operators.metrics.belief.acc_at_1 import ACC_AT_1
from factsweep.operators.metrics.belief.belief import METRICS
from factsweep.operators.metrics.noise import CUT_SHARE, FLIP_RATE
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared.card import card as card_of
from factsweep.operators.tables.shared.card import spread
from factsweep.operators.tables.shared.numbers import DASH, SHARE
from factsweep.operators.tables.shared.wide import joined

SHOWN = (*METRICS, CUT_SHARE, FLIP_RATE)
HEADINGS = headings(SHOWN)
_INTERVAL = "95 % interval"


def headline(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row for each model, benchmark, setting and variant, from the rows over all relations.

    `scope` says for how many prompts a demonstration was drawn. Numbers are texts with four digits,
    a dash where a number is undefined; those of several seeds are mean ± standard deviation, with
    the number of seeds. `prompts` and `failed` count those with and without a greedy answer.
    """
    overall = metrics.filter(pl.col("slice").is_null())
    text = pl.concat_str(SHARE.dashed(pl.col("value")), spread(overall, SHARE))
    overall = overall.with_columns(text=text)
    accuracy = overall.filter(pl.col("metric") == ACC_AT_1.name)
    counts = accuracy.select(
        *SETTING, SHARE.interval().fill_null(DASH).alias(_INTERVAL), prompts="n", failed="n_failed"
    )
    wide = overall.pivot(
        "metric", index=SETTING, values="text", aggregate_function="first", maintain_order=True
    )
    known = {metric: head for metric, head in HEADINGS.items() if metric in wide.columns}
    numbers = {heading: pl.col(metric).fill_null(DASH) for metric, heading in known.items()}
    scope = _scope(pl.col("setting"), pl.col("variant"))
    table = joined(wide.select(*SETTING, scope, **numbers), counts, SETTING)
    columns = list(numbers)
    columns.insert(1, _INTERVAL)  # behind Acc@1, whose interval it is
    return table.select(*SETTING, "scope", *columns, "prompts", "failed")


def parts(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per popularity decile and sample of the facts, where the set has any: `part`."""
    found = metrics.filter(pl.col("slice").str.contains("^(popularity|sample)="))
    found = found.with_columns(text=SHARE.dashed(pl.col("value")), prompts="n", part="slice")
    interval = found.filter(metric=ACC_AT_1.name).select(
        *SETTING, "part", SHARE.interval().fill_null(DASH).alias(f"Acc@1, {_INTERVAL}")
    )
    keys = [*SETTING, "part", "prompts"]
    wide = found.pivot("metric", index=keys, values="text", maintain_order=True)
    numbers = {head: metric for metric, head in HEADINGS.items() if metric in wide.columns}
    table = wide.select(*keys, **numbers)
    return joined(table, interval, keys[:-1])


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The same numbers for a narrow screen: one row per metric, one column per setting."""
    numbers = card_of(metrics, HEADINGS, SHARE, own=("draw", "prompts"))
    asked = pl.Series("asked", numbers.columns[1:], dtype=pl.String).to_frame()  # with variants
    scopes = asked.select("asked", _scope(pl.col("asked"), pl.col("asked")))
    row = pl.DataFrame([{"metric": "scope", **dict(scopes.iter_rows())}])
    return pl.concat([row, numbers])


def _scope(setting: pl.Expr, variant: pl.Expr) -> pl.Expr:
    """For how many prompts a demonstration was drawn; a dash where there are none."""
    return (
        pl.when(~setting.str.contains(r"^\d"))
        .then(pl.lit(DASH))
        .when(variant.str.contains("scope=prompt"))
        .then(pl.lit("prompt"))
        .otherwise(pl.lit("shared"))
        .alias("scope")
    )

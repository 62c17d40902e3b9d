"""The headline table of BELIEF-ICL (Tables 3, 4, 7): one row per setting, a column per metric."""

from collections.abc import Sequence

import polars as pl

from factsweep.operators.metrics.belief.acc_at_1 import ACC_AT_1
from factsweep.operators.metrics.belief.belief import METRICS
from factsweep.operators.metrics.noise import CUT_SHARE, FLIP_RATE
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared.card import card as card_of
from factsweep.operators.tables.shared.card import spread
from factsweep.operators.tables.shared.numbers import DASH, SHARE
from factsweep.operators.tables.shared.wide import joined, wide

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
    counts = overall.filter(metric=ACC_AT_1.name).select(
        *SETTING, SHARE.interval().fill_null(DASH).alias(_INTERVAL), prompts="n", failed="n_failed"
    )
    scope = _scope(pl.col("setting"), pl.col("variant"))
    table = joined(_table(overall, SETTING, text).with_columns(scope), counts, SETTING)
    first, *others = (each for each in HEADINGS.values() if each in table.columns)
    # The interval is that of Acc@1.
    return table.select(*SETTING, "scope", first, _INTERVAL, *others, "prompts", "failed")


def parts(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per popularity decile and sample of the facts, where the set has any: `part`."""
    found = metrics.filter(pl.col("slice").str.contains("^(popularity|sample)="))
    found = found.rename({"slice": "part", "n": "prompts"})
    keys = [*SETTING, "part"]
    interval = found.filter(metric=ACC_AT_1.name).select(
        *keys, SHARE.interval().fill_null(DASH).alias(f"Acc@1, {_INTERVAL}")
    )
    table = _table(found, [*keys, "prompts"], SHARE.dashed(pl.col("value")))
    return joined(table, interval, keys)


def _table(rows: pl.DataFrame, keys: Sequence[str], text: pl.Expr) -> pl.DataFrame:
    heading = pl.col("metric").replace_strict(HEADINGS, default=None)
    return wide(rows.with_columns(text=text, heading=heading), keys, HEADINGS.values())


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The same numbers for a narrow screen: one row per metric, one column per setting."""
    numbers = card_of(metrics, HEADINGS, SHARE, own=("draw", "prompts"))
    asked = pl.Series("asked", numbers.columns[1:], dtype=pl.String).to_frame()  # with variants
    scopes = asked.select("asked", _scope(pl.col("asked"), pl.col("asked")))
    row = pl.DataFrame([{"metric": "scope", **dict(scopes.iter_rows())}])
    return pl.concat([row, numbers])


def _scope(setting: pl.Expr, variant: pl.Expr) -> pl.Expr:
    """For how many prompts a demonstration was drawn; a dash where there are none."""
    none = pl.when(~setting.str.contains(r"^\d")).then(pl.lit(DASH))
    own = none.when(variant.str.contains("scope=prompt")).then(pl.lit("prompt"))
    return own.otherwise(pl.lit("shared")).alias("scope")

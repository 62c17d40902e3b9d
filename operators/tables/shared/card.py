"""The card of a run, one row per metric and one column per setting; and several seeds in tables."""

from collections.abc import Mapping, Sequence

import polars as pl

from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared.numbers import Number
from factsweep.operators.tables.shared.wide import joined


def has_seeds(metrics: pl.DataFrame) -> bool:
    """Whether some setting was measured by several seeds."""
    return "n_asked" in metrics.columns and bool((metrics["n_asked"] > 1).any())


def spread(metrics: pl.DataFrame, number: Number) -> pl.Expr:
    """Behind a mean over seeds, their standard deviation and number; nothing behind other numbers.

    >>> from factsweep.operators.tables.shared.numbers import SHARE
    >>> counts = {"n_seeds": [3, 1, 1], "n_asked": [3, 3, 1]}
    >>> metrics = pl.DataFrame({"sd": [0.0123, None, None], **counts})
    >>> metrics.select(spread(metrics, SHARE)).to_series().to_list()
    [' ± .0123 (3 seeds)', ' (1 of 3 seeds)', '']
    """
    if not has_seeds(metrics):
        return pl.lit("")
    deviation = pl.format(" ± {}", number.column(pl.col("sd"))).fill_null("")
    n, asked = pl.col("n_seeds").cast(pl.String), pl.col("n_asked").cast(pl.String)
    of = pl.when(pl.col("n_seeds") < pl.col("n_asked")).then(pl.format("{} of {}", n, asked))
    text = pl.format("{} ({} seeds)", deviation, of.otherwise(n))
    return pl.when(pl.col("n_asked") > 1).then(text).otherwise(pl.lit(""))


def with_seeds(table: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """A table of several settings with the column `seeds`: over how many its numbers are means.

    A row that names no single setting has the number of each that it could mean.

    >>> place = {"model": ["m", "m"], "benchmark": ["b"] * 2, "setting": ["x", "y"]}
    >>> metrics = pl.DataFrame({**place, "variant": [None] * 2, "n_asked": [3, 1]})
    >>> with_seeds(pl.DataFrame({"setting": ["x"], "F1": [0.5]}), metrics).row(0)
    ('x', 0.5, '3')
    """
    names = [name for name in SETTING if name in table.columns]
    if not names or "seeds" in table.columns:
        return table
    texts = pl.col("n_asked").unique().sort().cast(pl.String).str.join(", ")
    counts = metrics.group_by(names).agg(seeds=texts)
    return joined(table, counts, names)


def seeds_table(metrics: pl.DataFrame) -> pl.DataFrame:
    """What several seeds measured: one row per setting and metric over everything, as numbers.

    Columns: model, benchmark, setting, variant, metric, mean, SD, seeds.
    """
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("n_asked") > 1)
    return rows.select(
        *SETTING, "metric", pl.col("value").alias("mean"), pl.col("sd").alias("SD"), seeds="n_seeds"
    )


def card(
    metrics: pl.DataFrame, headings: Mapping[str, str], number: Number, own: Sequence[str]
) -> pl.DataFrame:
    """The metrics named in `headings`, over everything, with their intervals, or with their seeds.

    Variants in `own` (how a number was made) stand in its row's name, all others in its column's.
    """
    overall = metrics.filter(pl.col("slice").is_null(), pl.col("metric").is_in(list(headings)))
    parts = pl.col("variant").fill_null("").str.split(",")
    made = pl.element().str.split("=").list.first().is_in(list(own))
    in_row, in_column = (parts.list.filter(each).list.join(",") for each in (made, ~made))
    interval = pl.format(" ({})", number.interval()).fill_null("")
    heading = pl.col("metric").replace_strict(headings)
    rows = overall.select(
        metric=pl.concat_str(heading, in_row, separator=" ").str.strip_chars_end(),
        setting=pl.concat_str("setting", in_column, separator=" ").str.strip_chars_end(),
        number=pl.concat_str(number.dashed(pl.col("value")), interval, spread(overall, number)),
    )
    return rows.pivot("setting", index="metric", values="number", maintain_order=True)

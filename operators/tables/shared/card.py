"""The card of a run, for a narrow screen: one row per metric, one column per setting."""

from collections.abc import Mapping, Sequence

import polars as pl

from factsweep.operators.tables.shared.numbers import Number
from factsweep.operators.tables.shared.seeds import spread


def card(
    metrics: pl.DataFrame,
    headings: Mapping[str, str],
    number: Number,
    own: Sequence[str],
) -> pl.DataFrame:
    """The metrics named in `headings`, over everything, with their intervals.

    Where a setting has several seeds, their standard deviation and number stand for the interval.
    `own` are the variants that say how a number was made (`draw`): they stand in its row's name.
    All others say how it was asked, and stand in its column's.
    """
    overall = metrics.filter(pl.col("slice").is_null(), pl.col("metric").is_in(list(headings)))
    parts = pl.col("variant").fill_null("").str.split(",")
    made = pl.element().str.split("=").list.first().is_in(list(own))
    in_row, in_column = (parts.list.filter(each).list.join(",") for each in (made, ~made))
    interval = pl.format(" ({})", number.interval()).fill_null("")
    seeds = spread(overall, number)
    heading = pl.col("metric").replace_strict(headings)
    rows = overall.select(
        metric=pl.concat_str(heading, in_row, separator=" ").str.strip_chars_end(),
        setting=pl.concat_str("setting", in_column, separator=" ").str.strip_chars_end(),
        number=pl.concat_str(number.dashed(pl.col("value")), interval, seeds),
    )
    return rows.pivot("setting", index="metric", values="number", maintain_order=True)

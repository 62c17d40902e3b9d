"""Tables with one row per key and one column per heading, and what is joined to them."""

from collections.abc import Sequence

import polars as pl

from factsweep.operators.tables.shared.numbers import DASH


def joined(table: pl.DataFrame, further: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """The table with further columns of its rows; null where there are none."""
    return table.join(further, on=on, how="left", nulls_equal=True, maintain_order="left")


def wide(cells: pl.DataFrame, keys: Sequence[str], headings: Sequence[str]) -> pl.DataFrame:
    """The cells (keys, heading, text) as a table, columns in the order of `headings`.

    Other headings follow by name. A missing number is a dash.
    """
    table = cells.pivot(
        "heading", index=keys, values="text", aggregate_function="first", maintain_order=True
    )
    known = [heading for heading in headings if heading in table.columns]
    further = sorted(set(table.columns) - {*keys, *known})
    return table.select(*keys, pl.col([*known, *further]).fill_null(DASH))

"""A table in Markdown."""

import polars as pl


def markdown(table: pl.DataFrame) -> str:
    """The table in Markdown; a null is a dash."""
    layout = pl.Config(
        tbl_formatting="MARKDOWN",
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        tbl_rows=-1,
        tbl_cols=-1,
        tbl_width_chars=-1,
        fmt_str_lengths=1000,
    )
    with layout:
        return str(table.select(pl.all().cast(pl.String).fill_null("–"))) + "\n"

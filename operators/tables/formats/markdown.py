"""A table in Markdown."""

from functools import partial

import polars as pl

_LAYOUT = partial(
    pl.Config,
    tbl_formatting="MARKDOWN",
    tbl_hide_dataframe_shape=True,
    tbl_hide_column_data_types=True,
    tbl_rows=-1,
    tbl_cols=-1,
    tbl_width_chars=-1,
    fmt_str_lengths=1000,
)


def markdown(table: pl.DataFrame) -> str:
    r"""The table in Markdown; a null is a dash, and what would be HTML or a column's end is text.

    >>> print(markdown(pl.DataFrame({"said": ["<b>a</b>", "a|b", None]})), end="")
    | said           |
    |----------------|
    | &lt;b>a&lt;/b> |
    | a\|b           |
    | –              |
    """
    shown = pl.all().cast(pl.String).fill_null("–").str.replace_all("|", r"\|", literal=True)
    with _LAYOUT():
        return str(table.select(shown.str.replace_all(r"<([A-Za-z/!?])", "&lt;$1"))) + "\n"

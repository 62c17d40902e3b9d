"""A table as CSV that a spreadsheet opens as it is written."""

import polars as pl


def csv(table: pl.DataFrame, *, digits: int | None = None) -> str:
    """The table as CSV; no cell is a formula, whatever a model said or a relation is called.

    A text that a spreadsheet would compute gets an apostrophe before it, which says that it is
    text; numbers that are written as texts stay as they are.

    Source: OWASP, CSV Injection.

    >>> csv(pl.DataFrame({"name": ["=1+1", "-.0906 (-.1 to 0)", "–", "a,b"]})).splitlines()
    ['name', "'=1+1", '-.0906 (-.1 to 0)', '–', '"a,b"']
    """
    text = pl.col(pl.String)
    is_number = text.str.contains(r"^[+-]\.?\d")
    is_formula = text.str.contains(r"^[=@+\-\t\r]") & ~is_number
    safe = pl.when(is_formula).then("'" + text).otherwise(text).name.keep()
    return table.with_columns(safe).write_csv(float_precision=digits)

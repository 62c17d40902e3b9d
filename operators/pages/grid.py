"""A table on a page: texts, which columns hold numbers, and how much was left out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from factsweep.operators.tables.shared.numbers import SHARE

# A number as our tables print it: .1575, -.08, 17.62%, 1,600, .13–.18, .8175 (.7625–.8688), <.0001,
# -.01 to +.02, -.1 (-.3 to -.02), .5 ± .1 (3 seeds).
_NUMBER = re.compile(
    r"[-+±–<]?[\d.,]*\d%?"
    r"( ?[–(/][-+\d.,%–)/ ]*(to [-+\d.,%]+\))?| to [-+\d.,]+"
    r"|( ± [\d.,]+)? \([\d of]+ seeds\))?|–|n/a|"
)


@dataclass(frozen=True)
class Grid:
    """A table as texts. `numeric` marks the columns that hold numbers alone."""

    name: str
    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    n_left_out: int = 0


def grid(table: pl.DataFrame, name: str, title: str, *, most_rows: int = 100) -> Grid:
    """The first rows of a table; a null is a dash, a number is written as a share.

    A column without any value is left out.

    >>> table = pl.DataFrame({"relation": ["capital"], "Acc@1": [0.81251], "variant": [None]})
    >>> found = grid(table, "relations", "By relation")
    >>> found.columns, found.numeric, found.rows
    (('relation', 'Acc@1'), (False, True), (('capital', '.8125'),))
    """
    said = [column for column in table.columns if table[column].null_count() < table.height]
    shown = table.select(said).head(most_rows)
    columns = [[_text(value) for value in series] for series in shown.iter_columns()]
    return Grid(
        name,
        title,
        tuple(said),
        tuple(_is_numeric(column) for column in columns),
        tuple(zip(*columns, strict=True)),
        table.height - shown.height,
    )


def _text(value: object) -> str:
    if value is None:
        return "–"
    return SHARE.text(value) if isinstance(value, float) else str(value)


def _is_numeric(texts: Sequence[str]) -> bool:
    return all(_NUMBER.fullmatch(text) for text in texts) and any(text != "–" for text in texts)

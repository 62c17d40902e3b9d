"""The checksum of a table of a user's own: the same for the same rows, in whichever format.

A table counts as the CSV file that has its name and its rows, written with commas, line feeds and
no needless quotation marks. A CSV file that is written otherwise counts as it is, unpacked.
"""

import io
import json
from pathlib import Path

import polars as pl

from factsweep.operators.datasets import table_files
from factsweep.operators.datasets.layouts import is_structured
from factsweep.operators.datasets.plain_tables import MEANT, PLAIN_MORE, meant
from factsweep.pipeline.inputs import digests
from factsweep.pipeline.inputs.files import scan
from factsweep.pipeline.machine.text_files import unpacked

_OBJECTS = ("object", "object_id")


def checksum(path: Path) -> str:
    """One SHA-256 of a table.

    Raises:
        InputError: the table cannot be read.
    """
    rows = scan([path], as_written=True).collect()
    cells = rows.select(_cells(column) for column in rows)
    content = unpacked(path) if table_files.kind(path) == ".csv" else b""
    if not _is_plain_csv(content, rows):
        content = cells.write_csv().encode()
    contents = {f"{table_files.title(path)}.csv": content}
    # Versions before read these otherwise, under the checksum of the bytes.
    if _has_lists(cells):
        contents["lists"] = b""
    if _has_names_to_clean(cells):
        contents["names"] = b""
    return digests.of_contents(contents)


def _cells(column: pl.Series) -> pl.Series:
    """The texts that a CSV file has for a column; null where there is nothing."""
    if not column.dtype.is_nested():
        texts = column.cast(pl.String)
        return texts.set(texts == "", None)
    lists = (
        None if value is None else json.dumps(value, ensure_ascii=False)
        for value in column.to_list()
    )
    return pl.Series(column.name, lists, pl.String)


def _is_plain_csv(content: bytes, rows: pl.DataFrame) -> bool:
    """Whether a CSV file says its rows to any reader: it is UTF-8 and has commas."""
    try:
        return pl.read_csv(io.BytesIO(content), infer_schema=False).equals(rows)
    except pl.exceptions.PolarsError:
        return False


def _has_names_to_clean(cells: pl.DataFrame) -> bool:
    """Whether blanks stand around a value, or a column beside the four has capitals or blanks."""
    renamed = meant(cells.columns)
    cells = cells.rename(renamed)
    if not {*MEANT} <= {*cells.columns}:
        return False
    texts = cells.select(name for name in (*MEANT, *PLAIN_MORE) if name in cells.columns)
    has_blanks = not texts.equals(texts.select(pl.all().str.strip_chars()))
    return has_blanks or not {*PLAIN_MORE}.isdisjoint(renamed.values())


def _has_lists(cells: pl.DataFrame) -> bool:
    """Whether a column has lists beside texts, or several objects in a cell."""
    names = meant(cells.columns)
    n_lists = cells.select(is_structured(pl.all()).sum())
    return any(
        0 < n_lists[name].item() < cells[name].count()
        or (n_lists[name].item() and names.get(name, name) in _OBJECTS)
        for name in cells.columns
    )

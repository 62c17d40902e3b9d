"""Which files are tables of facts of a user's own, by their columns."""

import json
from pathlib import Path

import polars as pl

from factsweep.operators.datasets import table_files
from factsweep.operators.datasets.plain_tables import alike
from factsweep.operators.errors import InputError
from factsweep.pipeline.machine.text_files import decoded

_NEEDED = ("relation", "subject", "object")


def is_plain_table(path: Path) -> bool:
    """Whether a file is a table with a column for relation, subject and object.

    CSV and TSV are taken for one by their suffix. False for unreadable files.
    """
    if table_files.kind(path) not in table_files.TABLES or not path.is_file():
        return False
    if table_files.kind(path) in (".csv", ".tsv", ".txt"):
        return True
    try:
        names = _column_names(path)
    except (InputError, ValueError, OSError, pl.exceptions.PolarsError):
        return False
    return {*_NEEDED} <= {*names, *alike(names, _NEEDED).values()}


def _column_names(path: Path) -> list[str]:
    """The columns, or the fields of the first row in JSON."""
    if table_files.kind(path) in table_files.JSON:
        row, _ = json.JSONDecoder().raw_decode(decoded(path).lstrip().removeprefix("[").lstrip())
        return list(row) if isinstance(row, dict) else []
    scan = pl.scan_parquet if table_files.kind(path) == ".parquet" else pl.scan_ipc
    return scan(path, glob=False).collect_schema().names()

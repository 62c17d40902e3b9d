"""Files that a user gives or the catalog has: their rows, or their texts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from operators.errors import DamagedFileError

_MEND = "fetch or copy it again"


def content(paths: Sequence[Path], kind: Literal["rows", "texts"]) -> pl.LazyFrame | dict[str, str]:
    """What a reader is handed (`operators.datasets.readers`).

    Raises:
        DamagedFileError: a file is empty, truncated or of another kind.
    """
    return scan(paths) if kind == "rows" else texts(paths)


def texts(paths: Sequence[Path]) -> dict[str, str]:
    """The files' texts, by their last two path parts.

    Raises:
        DamagedFileError: a file is no text.
    """
    return {f"{path.parent.name}/{path.name}": text(path) for path in paths}


def text(path: Path) -> str:
    """A file's text.

    Raises:
        DamagedFileError: it is none.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def scan(paths: Sequence[Path]) -> pl.LazyFrame:
    """The rows of Parquet or JSONL files.

    Raises:
        DamagedFileError: a file is empty, truncated or of another kind.
    """
    found = [_scan(path) for path in paths]
    columns = found[0].collect_schema()
    for path, rows in zip(paths, found, strict=True):
        for column in {**columns, **(other := rows.collect_schema())}:
            if columns.get(column) != other.get(column):
                raise DamagedFileError(
                    f"{path} cannot be read with {paths[0]} (column {column}: "
                    f"{other.get(column)}, not {columns.get(column)}); {_MEND}."
                )
    return pl.concat(found)


def unreadable(path: Path, error: Exception) -> DamagedFileError:
    """The error of a file that a library cannot read."""
    reason = str(error).splitlines()[0]
    return DamagedFileError(f"{path} cannot be read ({reason}); {_MEND}.")


def _scan(path: Path) -> pl.LazyFrame:
    if path.stat().st_size == 0:
        raise DamagedFileError(f"{path} is empty; {_MEND}.")
    reader: Callable[[Path], pl.LazyFrame]
    reader = pl.scan_ndjson if path.suffix == ".jsonl" else pl.scan_parquet
    try:
        rows = reader(path)
        rows.collect_schema()
        rows.head(1).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise unreadable(path, error) from error
    return rows

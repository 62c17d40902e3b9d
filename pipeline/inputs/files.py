"""Files that a user gives or the catalog has: their rows, or their texts."""

import gzip
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import polars as pl

from factsweep.operators.construction.kamel import LABELS
from factsweep.operators.datasets.json_texts import parsed
from factsweep.operators.errors import DamagedFileError, InputError, reason

_FIX = "fetch or copy it again"
# By what libraries say.
_FIXES: Mapping[str, str] = {
    "utf-8": "save it as UTF-8",
    "more fields": "a row has more values than there are columns: put quotation marks around one "
    "that holds a comma",
    'could not parse `"': "close the quotation mark",
}
_TWICE = re.compile(r"(.+)_duplicated_\d+")
_READERS: Mapping[str, Callable[[Path], pl.LazyFrame]] = {
    ".parquet": pl.scan_parquet,
    ".jsonl": partial(pl.scan_ndjson, infer_schema_length=None),
    ".ndjson": partial(pl.scan_ndjson, infer_schema_length=None),
    ".json": lambda path: pl.read_json(path, infer_schema_length=None).lazy(),
    ".csv": partial(pl.scan_csv, infer_schema=False),
    ".tsv": partial(pl.scan_csv, infer_schema=False, separator="\t"),
}


def content(
    paths: Sequence[Path], kind: Literal["rows", "texts", "tables"]
) -> pl.LazyFrame | dict[str, str] | dict[str, pl.DataFrame]:
    """What a reader is handed (`operators.datasets.readers`).

    Raises:
        DamagedFileError: a file is empty, truncated or of another kind.
        InputError: JSON that libraries read in several ways.
    """
    match kind:
        case "rows":
            return _rows(paths)
        case "texts":
            return texts(paths)
        case "tables":
            return {path.name.partition(".")[0]: _table(path) for path in paths}


def texts(paths: Sequence[Path]) -> dict[str, str]:
    """The files' texts, by their last two path parts.

    Raises:
        InputError: two files have the same last two parts.
        DamagedFileError: a file is no text.
    """
    named: dict[str, Path] = {}
    for path in paths:
        other = named.setdefault(f"{path.parent.name}/{path.name}", path)
        if other != path:
            raise InputError(f"{other} and {path} are the same file of the set; leave one out.")
    return {name: text(path) for name, path in named.items()}


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
    """The rows of Parquet, JSONL, JSON (a list), CSV or TSV files (as texts), gzipped or not.

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
                    f"{other.get(column)}, not {columns.get(column)}); {_FIX}."
                )
    return pl.concat(found)


def _table(path: Path) -> pl.DataFrame:
    """All rows of a file; one of names by id (.tsv) has the columns entity_id and labels."""
    if kind(path) == ".tsv":
        rows = [line.split("\t") for line in text(path).splitlines() if line]
        return pl.DataFrame([(each, names) for each, *names in rows], LABELS, orient="row")
    return _rows([path]).collect()


def _rows(paths: Sequence[Path]) -> pl.LazyFrame:
    """The rows of files of facts, whose JSON all libraries read alike."""
    rows = scan(paths)
    for path in paths:
        _check_json(path)
    return rows


def _check_json(path: Path) -> None:
    """Refuse JSON that Polars would read in one way of several."""
    if kind(path) not in (".json", ".jsonl", ".ndjson"):
        return
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            if kind(path) == ".json":
                parsed(file.read(), str(path), "correct the file")
                return
            for number, line in enumerate(file, start=1):
                if line.strip():
                    parsed(line, f"{path}, line {number}")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def kind(path: Path) -> str:
    """The suffix that says how a file is read: that before `.gz`, if it is gzipped."""
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def has_rows(path: Path) -> bool:
    """Whether a file is of a kind that `scan` reads, by its name."""
    return kind(path) in _READERS


def unreadable(path: Path, error: BaseException) -> DamagedFileError:
    """The error of a file that a library cannot read."""
    why = reason(error)
    fix = next((fix for said, fix in _FIXES.items() if said in why.casefold()), _FIX)
    return DamagedFileError(f"{path} cannot be read ({why}); {fix}.")


def _scan(path: Path) -> pl.LazyFrame:
    if path.stat().st_size == 0:
        raise DamagedFileError(f"{path} is empty; {_FIX}.")
    try:
        rows = _READERS.get(kind(path), pl.scan_parquet)(path)
        columns = rows.collect_schema()
        rows.head(1).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise unreadable(path, error) from error  # Polars panics over some damaged Parquet
    for name in columns:  # as Polars calls a column whose name is there already
        if (found := _TWICE.fullmatch(name)) and found[1] in columns:
            raise InputError(f"{path} has the column {found[1]} twice; leave one out.")
    return rows

"""Files that a user gives or the catalog has: their rows, or their texts."""

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import polars as pl

from factsweep.operators.construction.kamel import LABELS
from factsweep.operators.datasets import table_files
from factsweep.operators.datasets.layouts import is_structured
from factsweep.operators.datasets.plain_tables import MEANT, PLAIN_MORE, meant
from factsweep.operators.datasets.table_files import json_lines, kind
from factsweep.operators.errors import DamagedFileError, InputError, reason
from factsweep.pipeline.inputs import digests
from factsweep.pipeline.machine.text_files import (
    FIX,
    decoded,
    head_of,
    text,
    unpacked,
    unreadable,
)

_TWICE = re.compile(r"(.+)_duplicated_\d+")
_READABLE = ", ".join(table_files.TABLES)
# What a file is by its first bytes, whatever its name.
_COLUMNAR: Mapping[bytes, Callable[[Path], pl.LazyFrame]] = {
    b"PAR1": partial(pl.scan_parquet, glob=False),
    b"ARROW1": partial(pl.scan_ipc, glob=False),
}
_HTML = re.compile(r"\s*<(!doctype|html|head|table|\?xml)\b", re.IGNORECASE)
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?', re.IGNORECASE)  # as Excel reads it
_OBJECTS = ("object", "object_id")
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


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
            return scan(paths, as_written=True)
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


def scan(
    paths: Sequence[Path], *, texts: Collection[str] = (), as_written: bool = False
) -> pl.LazyFrame:
    """The rows of Parquet, Arrow, JSONL, JSON (a list), CSV or TSV files, packed or not.

    Values of CSV and TSV are texts. So are those of a JSON field with values of several types,
    with lists and objects as JSON; `texts` are fields where that is refused. With `as_written`,
    fractions in JSON are texts, too (1.50).

    Raises:
        DamagedFileError: a file is empty, truncated or of another kind.
        InputError: a file is of a kind that must be converted first, or its JSON or its quotation
            marks are read in several ways.
    """
    tables = [_scan(path, texts, as_written=as_written) for path in paths]
    columns = tables[0].collect_schema()
    for path, rows in zip(paths, tables, strict=True):
        for column in {**columns, **(other := rows.collect_schema())}:
            if columns.get(column) != other.get(column):
                raise DamagedFileError(
                    f"{path} cannot be read with {paths[0]} (column {column}: "
                    f"{other.get(column)}, not {columns.get(column)}); {FIX}."
                )
    return pl.concat(tables)


def _table(path: Path) -> pl.DataFrame:
    """All rows of a file; one of names by id (.tsv) has the columns entity_id and labels."""
    if kind(path) == ".tsv":
        rows = [line.split("\t") for line in text(path).splitlines() if line]
        return pl.DataFrame([(each, names) for each, *names in rows], LABELS, orient="row")
    return scan([path]).collect()


def has_rows(path: Path) -> bool:
    """Whether a file of a folder is a table, by its name; a .txt may as well be a note."""
    return kind(path) in table_files.TABLES and kind(path) != ".txt"


def _scan(path: Path, texts: Collection[str], *, as_written: bool) -> pl.LazyFrame:
    try:
        rows = _rows(path, texts, as_written=as_written)
        columns = rows.collect_schema()
        rows.head(1).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise unreadable(path, error) from error  # Polars panics over some damaged Parquet
    for name in columns:  # as Polars calls a column whose name is there already
        if (match := _TWICE.fullmatch(name)) and match[1] in columns:
            raise InputError(f"{path} has the column {match[1]} twice; leave one out.")
    return rows


def _rows(path: Path, texts: Collection[str], *, as_written: bool) -> pl.LazyFrame:
    head = head_of(path)
    for magic, scan_columnar in _COLUMNAR.items():
        if head.startswith(magic):
            return scan_columnar(path)
    table = decoded(path)
    if not table.strip():
        raise DamagedFileError(f"{path} is empty; {FIX}.")
    if _HTML.match(table):
        raise InputError(f"{path} is a web page (HTML), no table; download the file itself.")
    if "\n" not in table:
        table = table.replace("\r", "\n")  # the line ends of old spreadsheets
    is_json = kind(path) in table_files.JSON
    if is_json or (kind(path) not in table_files.TABLES and table.lstrip()[:1] in ("{", "[")):
        try:
            lines = json_lines(table, str(path), texts, as_written=as_written)
        except InputError as error:
            raise DamagedFileError(f"{str(error)[:-1]}, or {FIX}.") from error
        if not lines:
            raise DamagedFileError(f"{path} has no rows; {FIX}.")
        return pl.read_ndjson(io.BytesIO(lines.encode()), infer_schema_length=None).lazy()
    if kind(path) not in (".csv", ".tsv", ".txt"):
        raise DamagedFileError(
            f"{path} is no {kind(path)[1:] or 'table'} that can be read; {FIX}, or give a file of "
            f"{_READABLE} under its own suffix."
        )
    return _delimited(path, table).lazy()


def _delimited(path: Path, table: str) -> pl.DataFrame:
    """The rows of CSV or TSV; the header shows which character separates the values."""
    header, _, below = table.partition("\n")
    if separator_line := _SEPARATOR_LINE.fullmatch(header):
        separator, table = separator_line[1], below
    else:
        separator = _separator(table.lstrip("\r\n").partition("\n")[0], kind(path))
    quote = '"' if _has_quoting(table, separator) else None
    try:
        rows = pl.read_csv(
            io.BytesIO(table.encode()), infer_schema=False, separator=separator, quote_char=quote
        )
        return rows.filter(~pl.all_horizontal(pl.all().is_null()))  # a blank line, or ",,,"
    except pl.exceptions.NoDataError as error:
        raise DamagedFileError(f"{path} is empty; {FIX}.") from error
    except pl.exceptions.PolarsError as error:
        raise DamagedFileError(
            f"{path} cannot be read ({_row_fault(table, separator) or reason(error)})."
        ) from error


def _separator(header: str, suffix: str) -> str:
    r"""What separates the names of a header: the usual character of the suffix, or another one.

    >>> [_separator(header, ".csv") for header in ("a,b", "a;b", "a\tb", '"a;b",c', "a")]
    [',', ';', '\t', ',', ',']
    """
    usual = "\t" if suffix == ".tsv" else ","
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(_SEPARATORS, key=lambda character: (unquoted.count(character), character == usual))


def _has_quoting(table: str, separator: str) -> bool:
    r"""Whether quotation marks are around values, as in CSV, and not parts of them.

    They are parts of the values if no value begins with one. In a table with tabs, they are parts
    of the values too if one mark in a line is not closed, or is not doubled within a value.

    >>> [_has_quoting(table, "\t") for table in ('a\t"b"', '"Weird Al" Y\tb', 'a\t"b')]
    [True, False, False]
    """
    if not re.search(rf'(^|{re.escape(separator)})"', table, re.MULTILINE):
        return False
    if separator != "\t":
        return True
    value = r'(?:[^"\t]*|"(?:[^"]|"")*")'
    line_of_values = re.compile(rf"{value}(?:\t{value})*")
    return all(line_of_values.fullmatch(line.rstrip("\r")) for line in table.split("\n"))


def _row_fault(table: str, separator: str) -> str | None:
    """The first row that is not as CSV should be, and how to correct it."""
    rows = csv.reader(io.StringIO(table, newline=""), delimiter=separator, strict=True)
    quoting = "a value that holds one is written in quotation marks, and the mark in it twice"
    try:
        n_columns = len(next(rows))
        for row in rows:
            if len(row) > n_columns:
                return (
                    f"line {rows.line_num} has {len(row)} values and the header {n_columns}: put "
                    "quotation marks around a value that holds a "
                    f"{_SEPARATORS.get(separator, separator)}"
                )
    except csv.Error:
        return f"line {rows.line_num}: a quotation mark is left open or stands within; {quoting}"
    return f"a quotation mark stands within a value; {quoting}" if '"' in table else None


def checksum(path: Path) -> str:
    """One SHA-256 of a table of a user's own: the same for the same rows, in whichever format.

    It counts as the CSV file that has its name and its rows, written with commas, line feeds and no
    needless quotation marks. A CSV file that is written otherwise counts as it is, unpacked.

    Raises:
        InputError: the table cannot be read.
    """
    rows = scan([path], as_written=True).collect()
    cells = rows.select(_cells(column) for column in rows)
    content = unpacked(path) if kind(path) == ".csv" else b""
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

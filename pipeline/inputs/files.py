"""Files that a user gives or the catalog has: their rows, or their texts."""

import bz2
import csv
import gzip
import io
import lzma
import re
import shlex
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pyarrow as pa

from factsweep.operators.construction.kamel import LABELS
from factsweep.operators.datasets import suffixes
from factsweep.operators.datasets.json_tables import json_lines
from factsweep.operators.datasets.suffixes import kind
from factsweep.operators.errors import DamagedFileError, InputError, reason

_FIX = "fetch or copy it again"
_TWICE = re.compile(r"(.+)_duplicated_\d+")
_READABLE = ", ".join(suffixes.TABLES)
_HEAD = 512  # bytes
# What a file is by its first bytes, whatever its name.
_COLUMNAR: Mapping[bytes, Callable[[Path], pl.LazyFrame]] = {
    b"PAR1": partial(pl.scan_parquet, glob=False),
    b"ARROW1": partial(pl.scan_ipc, glob=False),
}
_OPENERS: Mapping[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x28\xb5\x2f\xfd": partial(pa.input_stream, compression="zstd"),
}
_ENCODINGS: Mapping[bytes, str] = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_SPREADSHEET = (
    "a spreadsheet; save it as CSV in UTF-8, or run `soffice --headless --convert-to "
    "'csv:Text - txt - csv (StarCalc):44,34,76' {path}`"
)
_REFUSED: Mapping[bytes, str] = {  # by the suffix, if it is one of a spreadsheet
    b"PK\x03\x04": "a ZIP archive; unpack it with `unzip {path}` and give the file in it",
    b"\xd0\xcf\x11\xe0": _SPREADSHEET,
    b"SQLite format 3": "a database; write the table as CSV: `sqlite3 -csv -header {path} "
    "'SELECT * FROM facts' > facts.csv`",
    b"%PDF": "a PDF; copy its table to a CSV file",
    b"version https://git-lfs": "a pointer of git-lfs, not the file itself; run `git lfs pull`",
}
_SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods")
_HTML = re.compile(r"\s*<(!doctype|html|head|table|\?xml)\b", re.IGNORECASE)
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?', re.IGNORECASE)  # as Excel reads it
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


def text(path: Path) -> str:
    """A file's text, unpacked and without a byte order mark; each line ends with a line feed.

    Raises:
        DamagedFileError: it is none, or in an encoding that nothing names.
    """
    return _text(path).replace("\r\n", "\n").replace("\r", "\n")


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
                    f"{other.get(column)}, not {columns.get(column)}); {_FIX}."
                )
    return pl.concat(tables)


def _table(path: Path) -> pl.DataFrame:
    """All rows of a file; one of names by id (.tsv) has the columns entity_id and labels."""
    if kind(path) == ".tsv":
        rows = [line.split("\t") for line in text(path).splitlines() if line]
        return pl.DataFrame([(each, names) for each, *names in rows], LABELS, orient="row")
    return scan([path]).collect()


def has_rows(path: Path) -> bool:
    """Whether a file is of a kind that `scan` reads, by its name."""
    return kind(path) in suffixes.TABLES


def unreadable(path: Path, error: BaseException) -> DamagedFileError:
    """The error of a file that a library cannot read."""
    return DamagedFileError(f"{path} cannot be read ({reason(error)}); {_FIX}.")


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
    head = _head(path)
    for magic, scan_columnar in _COLUMNAR.items():
        if head.startswith(magic):
            return scan_columnar(path)
    table = _text(path)
    if not table.strip():
        raise DamagedFileError(f"{path} is empty; {_FIX}.")
    if _HTML.match(table):
        raise InputError(f"{path} is a web page (HTML), no table; download the file itself.")
    if "\n" not in table:
        table = table.replace("\r", "\n")  # the line ends of old spreadsheets
    is_json = kind(path) in suffixes.JSON
    if is_json or (kind(path) not in suffixes.TABLES and table.lstrip()[:1] in ("{", "[")):
        try:
            lines = json_lines(table, str(path), texts, as_written=as_written)
        except InputError as error:
            raise DamagedFileError(f"{str(error)[:-1]}, or {_FIX}.") from error
        if not lines:
            raise DamagedFileError(f"{path} has no rows; {_FIX}.")
        return pl.read_ndjson(io.BytesIO(lines.encode()), infer_schema_length=None).lazy()
    if kind(path) not in (".csv", ".tsv", ".txt"):
        raise DamagedFileError(
            f"{path} is no {kind(path)[1:] or 'table'} that can be read; {_FIX}, or give a file of "
            f"{_READABLE} under its own suffix."
        )
    return _delimited(path, table).lazy()


def _head(path: Path) -> bytes:
    """The first bytes of a file that may be a table.

    Raises:
        DamagedFileError: the file cannot be opened.
        InputError: the file must be converted first.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise unreadable(path, error) from error
    for magic, what in _REFUSED.items():
        if head.startswith(magic):
            is_sheet = magic == b"PK\x03\x04" and path.suffix.lower() in _SPREADSHEETS
            fix = (_SPREADSHEET if is_sheet else what).format(path=shlex.quote(str(path)))
            raise InputError(f"{path} is {fix}.")
    return head


def _text(path: Path) -> str:
    """The text of a file with the line ends that it has."""
    head = _head(path)
    opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), open)
    try:
        with opener(path, "rb") if opener is open else opener(path) as file:
            data: bytes = file.read()
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise unreadable(path, error) from error
    if not (encoding := _encoding(data)):
        raise DamagedFileError(
            f"{path} holds NUL bytes: it is no text, or UTF-16 without a byte order mark, which "
            f"`{_iconv('UTF-16LE', path)}` converts."
        )
    try:
        return data.decode(encoding).lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise DamagedFileError(_encoding_fault(path, data, encoding, error)) from error


def _encoding(data: bytes) -> str | None:
    """The encoding that a byte order mark names, else UTF-8; null for what is no text of bytes."""
    marked = next((name for mark, name in _ENCODINGS.items() if data.startswith(mark)), None)
    return marked or (None if b"\0" in data[:_HEAD] else "utf-8")


def _encoding_fault(path: Path, data: bytes, encoding: str, error: UnicodeDecodeError) -> str:
    line = data.count(b"\n", 0, error.start) + 1
    where = f"byte 0x{data[error.start]:02x} in line {line}"
    if encoding != "utf-8":
        return f"{path} is no complete {encoding.upper()} ({where}); {_FIX}."
    return (
        f"{path} is not UTF-8 ({where}); save it as UTF-8, or name its encoding (WINDOWS-1252, "
        f"ISO-8859-1, …): `{_iconv('WINDOWS-1252', path)}`."
    )


def _iconv(encoding: str, path: Path) -> str:
    converted = path.with_name(f"{path.stem}-utf8{path.suffix}")
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > {shlex.quote(str(converted))}"


def _delimited(path: Path, table: str) -> pl.DataFrame:
    """The rows of CSV or TSV; the header shows which character separates the values."""
    header, _, below = table.partition("\n")
    if given := _SEPARATOR_LINE.fullmatch(header):
        separator, table = given[1], below
    else:
        separator = _separator(table.lstrip("\r\n").partition("\n")[0], kind(path))
    quote = '"' if _has_quoting(table, separator) else None
    try:
        return pl.read_csv(
            io.BytesIO(table.encode()), infer_schema=False, separator=separator, quote_char=quote
        )
    except pl.exceptions.NoDataError as error:
        raise DamagedFileError(f"{path} is empty; {_FIX}.") from error
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
    return max(_SEPARATORS, key=lambda each: (unquoted.count(each), each == usual))


def _has_quoting(table: str, separator: str) -> bool:
    r"""Whether quotation marks are around values, as in CSV, and not parts of them.

    They are parts of the values where none begins with one. In a table with tabs they are that as
    well where a line has one that is not closed, or is not doubled within a value.

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

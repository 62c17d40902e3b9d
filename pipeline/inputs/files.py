"""Files of a user or of the catalog: their rows, texts and lines."""

import bz2
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Literal

import polars as pl

from factsweep.operators.construction.kamel import LABELS
from factsweep.operators.datasets import table_files
from factsweep.operators.datasets.kamel import lines as lines_of
from factsweep.operators.datasets.layouts import MEANT, PLAIN_MORE, is_structured, match_columns
from factsweep.operators.datasets.table_files import json_lines, kind
from factsweep.operators.errors import DamagedFileError, InputError, reason
from factsweep.operators.schemas import fit_schema, refuse, schema
from factsweep.pipeline.inputs import digests
from factsweep.pipeline.machine.text_files import (
    FIX,
    head_of,
    read_decoded,
    read_unpacked,
    text,
    unreadable,
)

_UNPACKED: Mapping[str, Callable[[BinaryIO], Iterable[bytes]]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
}

Values = Mapping[str, pl.Series]  # by column
_ALL: Values = MappingProxyType({})
_TWICE = re.compile(r"(.+)_duplicated_\d+")
_READABLE = ", ".join(table_files.TABLES)
# The kind of a file by its first bytes, which a name may contradict.
_COLUMNAR: Mapping[bytes, Callable[[Path], pl.LazyFrame]] = {
    b"PAR1": partial(pl.scan_parquet, glob=False),
    b"ARROW1": partial(pl.scan_ipc, glob=False),
}
_HTML = re.compile(r"\s*<(!doctype|html|head|table|\?xml)\b", re.IGNORECASE)
_OBJECTS = ("object", "object_id")


def read_content(
    paths: Sequence[Path], kind: Literal["rows", "texts", "tables", "files"]
) -> pl.LazyFrame | dict[str, str] | dict[str, pl.DataFrame]:
    """The input of a reader (`operators.datasets.readers`).

    Raises:
        DamagedFileError: a file is empty, truncated or of another kind.
        InputError: JSON that libraries read in several ways.
    """
    match kind:
        case "rows":
            return scan(paths, as_written=True)
        case "texts":
            return read_texts(paths)
        case "files":
            path_by_name = _name_by_last_parts(paths)
            return {n: scan([path], as_written=True).collect() for n, path in path_by_name.items()}
        case "tables":
            tables = {}
            for path in paths:
                if table_files.kind(path) == ".tsv":  # names by id
                    rows = [line.split("\t") for line in text(path).splitlines() if line]
                    names = [(entity, names) for entity, *names in rows]
                    table = pl.DataFrame(names, LABELS, orient="row")
                else:
                    table = scan([path]).collect()
                tables[path.name.partition(".")[0]] = table
            return tables


def read_texts(paths: Sequence[Path]) -> dict[str, str]:
    """The files' texts, by their last two path parts.

    Raises:
        InputError: two files have the same last two parts.
        DamagedFileError: a file is no text.
    """
    return {name: text(path) for name, path in _name_by_last_parts(paths).items()}


def _name_by_last_parts(paths: Sequence[Path]) -> dict[str, Path]:
    path_by_name: dict[str, Path] = {}
    for path in paths:
        first = path_by_name.setdefault(f"{path.parent.name}/{path.name}", path)
        if first != path:
            raise InputError(f"{first} and {path} are the same file of the set; leave one out.")
    return path_by_name


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
    tables = [_scan_file(path, texts, as_written=as_written) for path in paths]
    columns = tables[0].collect_schema()
    for path, rows in zip(paths, tables, strict=True):
        schema = rows.collect_schema()
        for column in {**columns, **schema}:
            if columns.get(column) != schema.get(column):
                raise DamagedFileError(
                    f"{path} cannot be read with {paths[0]} (column {column}: "
                    f"{schema.get(column)}, not {columns.get(column)}); {FIX}."
                )
    return pl.concat(tables)


def _scan_file(path: Path, texts: Collection[str], *, as_written: bool) -> pl.LazyFrame:
    try:
        rows = _read_rows(path, texts, as_written=as_written)
        columns = rows.collect_schema()
        rows.head(1).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise unreadable(path, error) from error  # Polars panics over some damaged Parquet
    for name in columns:  # Polars's name for the second column of a name
        if (match := _TWICE.fullmatch(name)) and match[1] in columns:
            raise InputError(f"{path} has the column {match[1]} twice; leave one out.")
    return rows


def read_parquet_note(path: Path, key: str) -> str | None:
    """The value of a key in the metadata of a Parquet file; null: it has none.

    Raises:
        DamagedFileError: the file cannot be read.
    """
    try:
        return pl.read_parquet_metadata(path).get(key)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise unreadable(path, error) from error


def _read_rows(path: Path, texts: Collection[str], *, as_written: bool) -> pl.LazyFrame:
    head = head_of(path)
    for magic, scan_columnar in _COLUMNAR.items():
        if head.startswith(magic):
            rows = scan_columnar(path)
            table_files.check_width(len(rows.collect_schema()), str(path))
            return rows
    table = read_decoded(path)
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
    return _read_delimited(path, table).lazy()


def _read_delimited(path: Path, table: str) -> pl.DataFrame:
    table_files.check_lines(table, str(path))
    header, _, below = table.partition("\n")
    if separator_line := table_files.SEPARATOR_LINE.fullmatch(header):
        separator, table = separator_line[1], below
        header = below.partition("\n")[0]
    else:
        header = table.lstrip("\r\n").partition("\n")[0]
        separator = table_files.find_separator(header, kind(path))
    table_files.check_width(header.count(separator) + 1, str(path))
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
            f"{path} cannot be read ({_find_row_fault(table, separator) or reason(error)})."
        ) from error


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


def _find_row_fault(table: str, separator: str) -> str | None:
    rows = csv.reader(io.StringIO(table, newline=""), delimiter=separator, strict=True)
    quoting = "a value that holds one is written in quotation marks, and the mark in it twice"
    try:
        n_columns = len(next(rows))
        for row in rows:
            if len(row) > n_columns:
                return (
                    f"line {rows.line_num} has {len(row)} values and the header {n_columns}: put "
                    "quotation marks around a value that holds a "
                    f"{table_files.SEPARATORS.get(separator, separator)}"
                )
    except csv.Error:
        return f"line {rows.line_num}: a quotation mark is left open or stands within; {quoting}"
    return f"a quotation mark stands within a value; {quoting}" if '"' in table else None


def checksum(path: Path) -> str:
    """One SHA-256 of a table of a user's own: the same for the same rows, in whichever format.

    It counts as the CSV file that has its name and its rows, written with commas, line feeds and no
    needless quotation marks. A CSV file in another form counts by its bytes, unpacked.

    Raises:
        InputError: the table cannot be read.
    """
    rows = scan([path], as_written=True).collect()
    cells = rows.select(_to_csv_cells(column) for column in rows)
    content = read_unpacked(path) if kind(path) == ".csv" else b""
    try:  # is it plain CSV, which any reader reads alike: UTF-8, with commas?
        is_plain = pl.read_csv(io.BytesIO(content), infer_schema=False).equals(rows)
    except pl.exceptions.PolarsError:
        is_plain = False
    contents = {
        f"{table_files.title(path)}.csv": content if is_plain else cells.write_csv().encode()
    }
    # Earlier versions read these otherwise, under the checksum of the bytes.
    if _has_lists(cells):
        contents["lists"] = b""
    if _has_names_to_clean(cells):
        contents["names"] = b""
    return digests.digest_contents(contents)


def _to_csv_cells(column: pl.Series) -> pl.Series:
    """The texts that a CSV file has for a column; null where there is nothing."""
    if not column.dtype.is_nested():
        texts = column.cast(pl.String)
        return texts.set(texts == "", None)
    lists = (
        None if value is None else json.dumps(value, ensure_ascii=False)
        for value in column.to_list()
    )
    return pl.Series(column.name, lists, pl.String)


def _has_names_to_clean(cells: pl.DataFrame) -> bool:
    """Whether a value has blanks around it, or the name of a further column capitals or blanks."""
    renamed = match_columns(cells.columns)
    cells = cells.rename(renamed)
    if not {*MEANT} <= {*cells.columns}:
        return False
    texts = cells.select(name for name in (*MEANT, *PLAIN_MORE) if name in cells.columns)
    has_blanks = not texts.equals(texts.select(pl.all().str.strip_chars()))
    return has_blanks or not {*PLAIN_MORE}.isdisjoint(renamed.values())


def _has_lists(cells: pl.DataFrame) -> bool:
    """Whether a column has both lists and texts, or several objects in a cell."""
    names = match_columns(cells.columns)
    n_lists = cells.select(is_structured(pl.all()).sum())
    return any(
        0 < n_lists[name].item() < cells[name].count()
        or (n_lists[name].item() and names.get(name, name) in _OBJECTS)
        for name in cells.columns
    )


def read_table(path: Path, columns: pl.Schema, values: Values = _ALL) -> pl.DataFrame:
    """The columns of a schema of a Parquet, JSONL or CSV file; `values` as for `rows`.

    Raises:
        InputError: no such file, a column that is missing or of another type, or a text that is
            empty.
    """
    table = fit_schema(read_rows(path, values=values), columns, str(path))
    empty = ", row {row} (counted from 0): %s is empty; fill it or drop the row."
    problems = {
        empty % column: pl.col(column).is_null()
        for column, dtype in columns.items()
        if dtype == pl.String
    }
    refuse(table.with_row_index("row"), problems, ["row"], str(path))
    return table


def read_rows(path: Path, *, as_written: bool = False, values: Values = _ALL) -> pl.DataFrame:
    """The rows of a Parquet, JSONL, JSON or CSV file; of Parquet those with `values` alone."""
    check_file(path)
    try:
        table = scan([path], as_written=as_written)
        if kind(path) == ".parquet":  # which may have all of Wikidata
            for column, dtype in table.collect_schema().items():
                if column in values and dtype == values[column].dtype:
                    table = table.filter(pl.col(column).is_in(values[column].implode()))
        return table.collect()
    except pl.exceptions.PolarsError as error:
        raise unreadable(path, error) from error


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file that are not empty, each behind where it stands."""
    check_file(path)
    for place, line in lines_of(str(path), text(path).removeprefix("\ufeff")):
        yield place, line.strip()


def texts_by_relation(path: Path, column: str) -> list[tuple[str, str]]:
    """Relations and their texts: a table with `relation_id` and `column`, or lines `P36, text`.

    Raises:
        InputError: a line without a comma, or with nothing on a side of it.
    """
    is_table = kind(path) in table_files.TABLES
    if kind(path) in (".csv", ".txt"):
        is_table = next(read_lines(path), ("", ""))[1].startswith("relation_id,")
    if is_table:
        return list(read_table(path, schema(f"relation_id text, {column} text")).iter_rows())
    texts = []
    for place, line in read_lines(path):
        relation_id, _, text = (part.strip() for part in line.partition(","))
        if not (relation_id and text):
            raise InputError(f"{place}: {line!r} is no relation, comma and {column}; correct it.")
        texts.append((relation_id, text))
    return texts


def read_labels(path: Path, values: Values = _ALL) -> pl.DataFrame:
    """Names of entities (LABELS): as `table`, or a .tsv file with an id and its names in each line.

    Raises:
        InputError: as `table`, or a line without a name.
    """
    if kind(path) != ".tsv":
        return read_table(path, LABELS, values)
    entities = []
    for place, line in read_lines(path):
        entity_id, *names = line.split("\t")
        if not names:
            raise InputError(f"{place}: {line!r} has no name; write the id, a tab and the names.")
        entities.append((entity_id, names))
    return pl.DataFrame(entities, schema=LABELS, orient="row")


@contextmanager
def open_lines(path: Path) -> Iterator[tuple[BinaryIO, Iterable[bytes]]]:
    """A file, and its lines, by its suffix unpacked by gzip or bzip2.

    Raises:
        InputError: there is no such file, it cannot be read, or a step over its lines fails.
    """
    check_file(path)
    unpack = _UNPACKED.get(path.suffix, iter)
    try:
        with path.open("rb") as raw:
            yield raw, unpack(raw)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error


def check_file(path: Path) -> None:
    """Refuse a file that is none."""
    if not path.is_file():
        raise InputError(f"{path} is no file; give one.")

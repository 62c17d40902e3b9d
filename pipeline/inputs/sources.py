"""What a set is made of: tables, lines and dumps that a user gives."""

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import polars as pl

from factsweep.operators.construction import wikidata
from factsweep.operators.construction.kamel import LABELS, TRIPLES
from factsweep.operators.construction.wikidata import Chunk, Filter
from factsweep.operators.datasets import table_files
from factsweep.operators.datasets.kamel import lines as lines_of
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import fitted, refuse, schema
from factsweep.pipeline.inputs.files import scan
from factsweep.pipeline.machine.logs import Meter
from factsweep.pipeline.machine.text_files import text, unreadable

_LINES_PER_CHUNK = 10_000  # of a dump: some 130 MB, about two seconds
_UNPACKED: Mapping[str, Callable[[BinaryIO], Iterable[bytes]]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
}


def table(path: Path, wanted: pl.Schema) -> pl.DataFrame:
    """The columns of a schema of a Parquet, JSONL or CSV file.

    Raises:
        InputError: no such file, a column that is missing or of another type, or a text that is
            empty.
    """
    chosen = fitted(rows(path), wanted, str(path))
    texts = [column for column, dtype in wanted.items() if dtype == pl.String]
    empty = ", row {row} (counted from 0): %s is empty; fill it or drop the row."
    problems = {empty % column: pl.col(column).is_null() for column in texts}
    refuse(chosen.with_row_index("row"), problems, ["row"], str(path))
    return chosen


def rows(path: Path, *, as_written: bool = False) -> pl.DataFrame:
    """All of a Parquet, JSONL, JSON or CSV file; texts and numbers as `scan` has them."""
    check_file(path)
    try:
        return scan([path], as_written=as_written).collect()
    except pl.exceptions.PolarsError as error:
        raise unreadable(path, error) from error


def content(path: Path) -> str:
    """The text of a file."""
    check_file(path)
    return text(path)


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file that are not empty, each behind where it stands."""
    for where, line in lines_of(str(path), content(path).removeprefix("\ufeff")):
        yield where, line.strip()


def texts_by_relation(path: Path, column: str) -> list[tuple[str, str]]:
    """Relations and their texts: a table with `relation_id` and `column`, or lines `P36, text`.

    Raises:
        InputError: a line without a comma, or with nothing on a side of it.
    """
    is_table = table_files.kind(path) in table_files.TABLES
    if table_files.kind(path) in (".csv", ".txt"):
        is_table = next(lines(path), ("", ""))[1].startswith("relation_id,")
    if is_table:
        return list(table(path, schema(f"relation_id text, {column} text")).iter_rows())
    found = []
    for where, line in lines(path):
        relation_id, _, said = (part.strip() for part in line.partition(","))
        if not (relation_id and said):
            raise InputError(f"{where}: {line!r} is no relation, comma and {column}; correct it.")
        found.append((relation_id, said))
    return found


def labels(path: Path) -> pl.DataFrame:
    """Names of entities (LABELS): a table, or a .tsv file with an id and its names in each line.

    Raises:
        InputError: as `table`, or a line without a name.
    """
    if table_files.kind(path) != ".tsv":
        return table(path, LABELS)
    found = []
    for where, line in lines(path):
        entity_id, *names = line.split("\t")
        if not names:
            raise InputError(f"{where}: {line!r} has no name; write the id, a tab and the names.")
        found.append((entity_id, names))
    return pl.DataFrame(found, schema=LABELS, orient="row")


def dump(path: Path, take: Filter, title: str) -> Chunk:
    """What `take` takes of a Wikidata dump (.json, .json.gz, .json.bz2), read as a stream.

    Raises:
        InputError: no such file, or one that is no dump.
    """
    found = [Chunk(TRIPLES.to_frame(), LABELS.to_frame())]
    n_names = n_triples = 0
    with opened(path) as (raw, stream), Meter(title) as meter:
        size = max(1, path.stat().st_size)
        for chunk in wikidata.read(stream, take, lines_per_chunk=_LINES_PER_CHUNK):
            found.append(chunk)
            n_triples += chunk.triples.height
            n_names += chunk.labels.height
            meter.show(
                f"{raw.tell() / size:.1%} of {path.name} · "
                f"{n_triples:,} triples, {n_names:,} named entities"
            )
    return Chunk(*(pl.concat(parts) for parts in zip(*found, strict=True)))


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, Iterable[bytes]]]:
    """A file, and its lines, by its suffix unpacked by gzip or bzip2.

    Raises:
        InputError: there is no such file, it cannot be read, or what is made of its lines fails.
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

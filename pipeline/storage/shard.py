"""A shard: a canonical table as Parquet; its footer says what it is, and has a checksum of it.

One that is not whole, has no such footer or belongs elsewhere is a DamagedFileError.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import polars as pl
import pyarrow as pa

from factsweep.operators.errors import reason
from factsweep.operators.schemas import SCHEMAS, conform
from factsweep.pipeline.storage.json_files import Stored, from_json, to_json
from factsweep.pipeline.storage.store import Store

Counts = Mapping[str, int | float | str]

_FOOTER = b"factsweep"
_END_BYTES = 2**16  # more than the metadata of most shards


class Place(NamedTuple):
    """Where a shard belongs: the table it is of, the artifact, and its name in there.

    >>> Place("prompts", "0123456789abcdef", "prompts/P36.0000")
    Place(table='prompts', fingerprint='0123456789abcdef', shard='prompts/P36.0000')
    """

    table: str
    fingerprint: str
    shard: str


class Footer(NamedTuple):
    """What a shard's footer says: its rows, its counts, the SHA-256 of all that stands before."""

    rows: int
    counts: Counts
    content: str


def numbers(counts: Counts) -> dict[str, float]:
    """The counts that add up over shards; the others are names.

    >>> numbers({"prompts": 8, "seconds": 1.5, "model": "gpt2"})
    {'prompts': 8, 'seconds': 1.5}
    """
    return {name: value for name, value in counts.items() if not isinstance(value, str)}


def encode(frame: pl.DataFrame, place: Place, counts: Counts | None = None) -> bytes:
    """A shard: the canonical schema, the same bytes for the same rows, and the footer."""
    return pack(frame, place, counts)[0]


def pack(frame: pl.DataFrame, place: Place, counts: Counts | None = None) -> tuple[bytes, Footer]:
    """As `encode`, and what the footer says."""
    from pyarrow.parquet import ParquetWriter

    arrow = conform(frame, place.table).combine_chunks()
    sink = io.BytesIO()
    with ParquetWriter(sink, arrow.schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_table(arrow)
        data = hashlib.sha256(sink.getbuffer()).hexdigest()
        said = Footer(arrow.num_rows, dict(counts or {}), data)
        footer = to_json({**place._asdict(), **said._asdict()})
        writer.add_key_value_metadata({_FOOTER: footer})
    return sink.getvalue(), said


def decode(
    content: bytes,
    place: Place,
    file: Stored,
    columns: Sequence[str] | None = None,
    categories: Sequence[str] = (),
) -> pl.DataFrame:
    """The rows of a shard, if it is whole and is what its place says; columns as in `rows`.

    Raises:
        DamagedFileError: it is not.
    """
    check(content, place, file)
    return rows(content, place.table, file, columns, categories, validate=True)


def check(content: bytes, place: Place, file: Stored) -> Footer:
    """The footer of a shard whose data are those that were written.

    Raises:
        DamagedFileError: they are not, or it belongs elsewhere.
    """
    footer = read_footer(pa.BufferReader(content), place, file)
    # The length of the footer is in the last 8 bytes.
    data = memoryview(content)[: -int.from_bytes(content[-8:-4], "little") - 8]
    if hashlib.sha256(data).hexdigest() != footer.content:
        raise file.damaged("holds other data than were written")
    return footer


def rows(
    content: bytes,
    table: str,
    file: Stored,
    columns: Sequence[str] | None = None,
    categories: Sequence[str] = (),
    *,
    validate: bool = False,
) -> pl.DataFrame:
    """The rows of a shard whose checksum is right; `validate` where that leaves its footer out.

    `columns` are those that are unpacked, in their order; null: all. Those of `categories` are
    texts that come as categories of their own, as they are stored: grouping them takes a fraction.

    Raises:
        DamagedFileError: it is not whole, or has another schema than the table has today.
    """
    from pyarrow.parquet import ParquetFile, read_metadata

    with _whole(file):
        metadata = read_metadata(pa.BufferReader(content))
        schema = metadata.schema.to_arrow_schema()
    if not schema.equals(SCHEMAS[table]):
        raise file.damaged(f"has another schema than table {table}")
    names = list(schema.names if columns is None else columns)
    coded = [name for name in names if name in categories]
    with _whole(file):
        reader = pa.BufferReader(content)
        arrow = ParquetFile(reader, metadata=metadata, read_dictionary=coded).read(names)
        if validate:
            arrow.validate(full=True)  # where a bit of the schema is flipped, text may be none
    frame = pl.from_arrow(arrow.drop_columns(coded).replace_schema_metadata(None))
    assert isinstance(frame, pl.DataFrame)
    found = (_as_categories(arrow[name], name) for name in coded)
    return pl.DataFrame([*frame.get_columns(), *found]).select(names)


def _as_categories(column: pa.ChunkedArray, name: str) -> pl.Series:
    # Polars would number the texts of all shards that are in memory together.
    coded = column.combine_chunks()
    texts = pl.Series(name, coded.dictionary, pl.String)
    kind = pl.Categorical(pl.Categories.random())
    return texts.cast(kind).gather(pl.Series(coded.indices, dtype=pl.UInt32))


def read_footer(content: pa.NativeFile, place: Place, file: Stored) -> Footer:
    """What the footer of a shard says, without reading the rest of it.

    Raises:
        DamagedFileError: it has none, or one that says that the shard belongs elsewhere.
    """
    from pyarrow.parquet import read_metadata

    with _whole(file):
        found = read_metadata(content)
        text = (found.metadata or {}).get(_FOOTER)
    if text is None:
        raise file.damaged("is Parquet of something else")
    footer = Stored(f"the footer of {file.where}", file.name)
    said = from_json(text, footer, "counts", "content")
    for field, value in {**place._asdict(), "rows": found.num_rows}.items():
        if (other := said.get(field)) != value:
            raise file.damaged(f"belongs elsewhere: its footer says {field} {other}, not {value}")
    return Footer(found.num_rows, cast(Counts, said["counts"]), str(said["content"]))


def footer_of(store: Store, place: Place, file: Stored) -> Footer:
    """What the footer of a shard says, from the end of its file; FileNotFoundError: it is gone.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: it has no footer, or one that says that the shard belongs elsewhere.
    """
    end = store.get(str(file.name), _END_BYTES)
    if len(end) == _END_BYTES and int.from_bytes(end[-8:-4], "little") + 8 > _END_BYTES:
        end = store.get(str(file.name))
    return read_footer(pa.BufferReader(end), place, file)


@contextmanager
def _whole(file: Stored) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:
        raise file.damaged(f"is not a whole Parquet file ({reason(error)})") from error

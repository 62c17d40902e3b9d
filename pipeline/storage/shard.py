"""A shard: a canonical table as Parquet; its footer names its place and has a checksum.

Damaged shards, and those of other places, raise a DamagedFileError.
"""

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import polars as pl
import pyarrow as pa

from factsweep.operators.errors import reason
from factsweep.operators.schemas import SCHEMAS, conform
from factsweep.pipeline.storage.store import Store, StoredFile, from_json, to_json

Counts = Mapping[str, int | float | str]

_FOOTER = b"factsweep"
_END_BYTES = 2**16  # more than the metadata of most shards


class ShardPlace(NamedTuple):
    """The place of a shard: its table, its artifact, and its name in there.

    >>> ShardPlace("prompts", "0123456789abcdef", "prompts/P36.0000")
    ShardPlace(table='prompts', fingerprint='0123456789abcdef', shard='prompts/P36.0000')
    """

    table: str
    fingerprint: str
    shard: str


class Footer(NamedTuple):
    """The footer of a shard: its rows, its counts, the SHA-256 of the data before it."""

    rows: int
    counts: Counts
    content: str


def sum_counts(counts_of_shards: Iterable[Counts]) -> Counter[str]:
    """The sums of the counts that are numbers, not names.

    >>> dict(sum_counts([{"prompts": 8, "model": "gpt2"}, {"prompts": 1, "seconds": 1.5}]))
    {'prompts': 9, 'seconds': 1.5}
    """
    sums = Counter[str]()
    for counts in counts_of_shards:
        sums.update({name: n for name, n in counts.items() if not isinstance(n, str)})
    return sums


def encode(frame: pl.DataFrame, place: ShardPlace, counts: Counts | None = None) -> bytes:
    """A shard in the canonical schema: the same bytes for the same rows, and the footer."""
    return pack(frame, place, counts)[0]


def pack(
    frame: pl.DataFrame, place: ShardPlace, counts: Counts | None = None
) -> tuple[bytes, Footer]:
    """The result of `encode`, and the footer."""
    from pyarrow.parquet import ParquetWriter

    arrow = conform(frame, place.table).combine_chunks()
    sink = io.BytesIO()
    with ParquetWriter(sink, arrow.schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_table(arrow)
        sha256 = hashlib.sha256(sink.getbuffer()).hexdigest()
        footer = Footer(arrow.num_rows, dict(counts or {}), sha256)
        text = to_json({**place._asdict(), **footer._asdict()})
        writer.add_key_value_metadata({_FOOTER: text})
    return sink.getvalue(), footer


def decode(
    content: bytes,
    place: ShardPlace,
    file: StoredFile,
    columns: Sequence[str] | None = None,
    categories: Sequence[str] = (),
) -> pl.DataFrame:
    """The rows of a shard after `check`; columns as in `rows`."""
    check(content, place, file)
    return rows(content, place.table, file, columns, categories, validate=True)


def check(content: bytes, place: ShardPlace, file: StoredFile) -> Footer:
    """Check the place and the checksum of a shard; returns its footer."""
    footer = read_footer(pa.BufferReader(content), place, file)
    # The length of the footer is in the last 8 bytes.
    data = memoryview(content)[: -int.from_bytes(content[-8:-4], "little") - 8]
    if hashlib.sha256(data).hexdigest() != footer.content:
        raise file.damaged_file_error("holds other data than were written")
    return footer


def rows(
    content: bytes,
    table: str,
    file: StoredFile,
    columns: Sequence[str] | None = None,
    categories: Sequence[str] = (),
    *,
    validate: bool = False,
) -> pl.DataFrame:
    """The rows of a shard whose checksum is right; `validate` if that leaves out its footer.

    `columns` are unpacked in their order (None: all). Texts of `categories` become categoricals, as
    they are stored: grouping them takes a fraction of the time.

    Raises:
        DamagedFileError: it is not valid Parquet, or has another schema than the table has today.
    """
    from pyarrow.parquet import ParquetFile, read_metadata

    with _refuse_damaged_file(file):
        metadata = read_metadata(pa.BufferReader(content))
        schema = metadata.schema.to_arrow_schema()
    if not schema.equals(SCHEMAS[table]):
        raise file.damaged_file_error(f"has another schema than table {table}")
    names = list(schema.names if columns is None else columns)
    coded = [name for name in names if name in categories]
    with _refuse_damaged_file(file):
        reader = pa.BufferReader(content)
        arrow = ParquetFile(reader, metadata=metadata, read_dictionary=coded).read(names)
        if validate:
            arrow.validate(full=True)  # a flipped bit of the schema may make texts invalid
    frame = pl.from_arrow(arrow.drop_columns(coded).replace_schema_metadata(None))
    assert isinstance(frame, pl.DataFrame)
    categoricals = (_as_categories(arrow[name], name) for name in coded)
    return pl.DataFrame([*frame.get_columns(), *categoricals]).select(names)


def _as_categories(column: pa.ChunkedArray, name: str) -> pl.Series:
    # Polars would number the texts of all shards in memory together.
    coded = column.combine_chunks()
    texts = pl.Series(name, coded.dictionary, pl.String)
    kind = pl.Categorical(pl.Categories.random())
    return texts.cast(kind).gather(pl.Series(coded.indices, dtype=pl.UInt32))


def read_footer(content: pa.NativeFile, place: ShardPlace, file: StoredFile) -> Footer:
    """The footer of a shard of this place, read without its rows."""
    from pyarrow.parquet import read_metadata

    with _refuse_damaged_file(file):
        metadata = read_metadata(content)
        text = (metadata.metadata or {}).get(_FOOTER)
    if text is None:
        raise file.damaged_file_error("is Parquet of something else")
    footer_file = StoredFile(f"the footer of {file.where}", file.name)
    footer = from_json(text, footer_file, "counts", "content")
    for field, expected in {**place._asdict(), "rows": metadata.num_rows}.items():
        if (value := footer.get(field)) != expected:
            raise file.damaged_file_error(
                f"belongs elsewhere: its footer says {field} {value}, not {expected}"
            )
    return Footer(metadata.num_rows, cast(Counts, footer["counts"]), str(footer["content"]))


def footer_of(store: Store, place: ShardPlace, file: StoredFile) -> Footer:
    """The footer of a shard, read from the end of its file; a FileNotFoundError if it is gone."""
    end = store.get(str(file.name), _END_BYTES)
    if len(end) == _END_BYTES and int.from_bytes(end[-8:-4], "little") + 8 > _END_BYTES:
        end = store.get(str(file.name))
    return read_footer(pa.BufferReader(end), place, file)


@contextmanager
def _refuse_damaged_file(file: StoredFile) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:
        raise file.damaged_file_error(f"is not a whole Parquet file ({reason(error)})") from error

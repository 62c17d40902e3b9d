"""Shards: rows are read as written, or refused."""

import contextlib
import io
from collections.abc import Callable

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.storage import shard
from factsweep.pipeline.storage.shard import ShardPlace, decode, encode
from factsweep.pipeline.storage.store import StoredFile
from tests.messages import naming

PLACE = ShardPlace("relations", "f1", "relations/all")
ROWS = pl.DataFrame({"relation_id": ["P36", "P30"], "label": ["capital", "continent"]})

Damage = Callable[[bytes], bytes]


def read(content: bytes, *categories: str) -> pl.DataFrame:
    file = StoredFile("here", "relations/f1/relations/all.parquet")
    return decode(content, PLACE, file, categories=categories)


def flipped(content: bytes) -> bytes:
    """One bit of the first page's data is another."""
    chunk = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    place = chunk.data_page_offset + chunk.total_compressed_size - 1
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def rewritten(content: bytes, change: Callable[[pl.DataFrame], pl.DataFrame]) -> bytes:
    """The same file with other rows under the footer that it had."""
    footer = pq.read_metadata(io.BytesIO(content)).metadata
    table = change(pl.read_parquet(io.BytesIO(content))).to_arrow()
    table = table.cast(pq.read_table(io.BytesIO(content)).schema)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(footer), sink, compression="zstd")
    return sink.getvalue()


DAMAGES: dict[str, Damage] = {
    "cut": lambda content: content[: len(content) // 2],
    "cut short of a byte": lambda content: content[:-1],
    "empty": lambda _: b"",
    "text": lambda _: b"no Parquet file at all",
    "bit flipped": flipped,
    "a row less": lambda content: rewritten(content, lambda rows: rows[:1]),
    "another value": lambda content: rewritten(
        content, lambda rows: rows.with_columns(label=pl.lit("capital"))
    ),
    "another artifact's": lambda _: encode(ROWS, PLACE._replace(fingerprint="f2")),
    "a sibling's": lambda _: encode(ROWS, PLACE._replace(shard="relations/more")),
    "another table's": lambda _: encode(
        pl.DataFrame({"pair_id": ["P1.Q1"], "prompt_id": "p", "relation_id": "P1", "text": "x"}),
        PLACE._replace(table="given"),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_decode_damaged_shard_is_refused(damage: Damage) -> None:
    with pytest.raises(DamagedFileError, match="here "):
        read(damage(encode(ROWS, PLACE)))


@pytest.mark.parametrize("bit", [0, 7])
def test_decode_any_bit_flipped_is_refused_or_changes_nothing(bit: int) -> None:
    content = encode(ROWS, PLACE, {"seconds": 1.5})
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        with contextlib.suppress(DamagedFileError):
            assert read(bytes(damaged)).equals(ROWS)
        with contextlib.suppress(DamagedFileError):
            rows = read(bytes(damaged), "label")
            assert rows.with_columns(pl.col("label").cast(pl.String)).equals(ROWS)


def test_decode_encoded_frame_is_the_same_frame() -> None:
    assert_frame_equal(read(encode(ROWS, PLACE)), ROWS)


def test_decode_texts_as_categories_are_the_same_texts() -> None:
    content, file = encode(ROWS, PLACE), StoredFile("here", "all.parquet")
    categories = pl.Series(map(str, range(100))).cast(pl.Categorical())
    for columns in (None, ["label"], ["label", "relation_id"]):
        rows = decode(content, PLACE, file, columns, categories=("label", "of another table"))
        assert isinstance(rows["label"].dtype, pl.Categorical)
        assert rows["label"].to_physical().to_list() == [0, 1]  # independent of other categories
        assert_frame_equal(rows.cast({"label": pl.String}), ROWS.select(columns or pl.all()))
    assert categories.len() == 100


def test_decode_nulls_and_repeated_texts_as_categories_keep_their_places() -> None:
    place = ShardPlace("answers", "f1", "answers/P36")
    keys = pl.Series("key", ["a", None, "b", "a"] * 50_000)
    rows = pl.DataFrame(keys).with_columns(
        pl.int_range(pl.len()).cast(pl.String).alias("prompt_id"),
        *(pl.lit("P36").alias(name) for name in ("relation_id", "pair_id", "template_id")),
        *(pl.lit(0).alias(name) for name in ("subject_index", "n_lemmas")),
        correct=True,
    )
    for part in (rows, rows.clear(), rows.filter(pl.col("key").is_null())):
        content, file = encode(part, place), StoredFile("here", "P36.parquet")
        # More ids of prompts than fit into a dictionary: the last are stored without one.
        coded = ("key", "pair_id", "prompt_id")
        categoricals = decode(content, place, file, categories=coded)
        texts = categoricals.with_columns(pl.col(coded).cast(pl.String))
        assert_frame_equal(texts, decode(content, place, file))


def test_categories_of_chunks_with_other_dictionaries_are_the_same_texts() -> None:
    texts = [["a", None, "b"], ["b", "c"], []]
    chunks = [pa.array(chunk_texts, pa.string()).dictionary_encode() for chunk_texts in texts]
    column = shard._as_categories(pa.chunked_array(chunks), "key")
    assert column.cast(pl.String).to_list() == ["a", None, "b", "b", "c"]


def test_decode_frame_without_rows_has_the_columns() -> None:
    assert_frame_equal(read(encode(ROWS.clear(), PLACE)), ROWS.clear())


def test_decode_parquet_of_somebody_else_is_refused() -> None:
    sink = io.BytesIO()
    ROWS.write_parquet(sink)
    with pytest.raises(DamagedFileError, match=naming("Parquet", "something")):
        read(sink.getvalue())


def test_decode_shard_of_another_schema_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encode(ROWS, PLACE)
    schema = pq.read_table(io.BytesIO(content)).schema.append(pa.field("more", pa.string()))
    monkeypatch.setattr(shard, "SCHEMAS", {"relations": schema})
    with pytest.raises(DamagedFileError, match=naming("table relations")):
        read(content)


def test_encode_same_rows_in_other_pieces_is_the_same_file() -> None:
    pieces = pl.concat([ROWS[:1], ROWS[1:]], rechunk=False)
    assert encode(pieces, PLACE) == encode(ROWS, PLACE)


def test_encode_missing_column_names_table_and_column() -> None:
    with pytest.raises(InputError, match=naming("table relations", "column label")):
        encode(ROWS.drop("label"), PLACE)


def test_encode_wrong_type_names_the_table() -> None:
    with pytest.raises(InputError, match=naming("table relations")):
        encode(ROWS.with_columns(label=pl.struct("relation_id")), PLACE)

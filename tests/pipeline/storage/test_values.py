"""The digest of a table's values: of what it holds, and not of how it is stored."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.schemas.tables import declared
from factsweep.pipeline.storage.values import digest

SCHEMA = declared(
    "name text, n uint16, logprob float, is_right bool, texts text[], objects object[]",
    object=pa.struct(declared("object_id text, labels text[]")),
)
TEXTS = st.none() | st.text(max_size=3)
OBJECTS = st.fixed_dictionaries({"object_id": TEXTS, "labels": st.none() | st.lists(TEXTS)})
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": TEXTS,
            "n": st.none() | st.integers(0, 3),
            "logprob": st.none() | st.floats(-1, 1),
            "is_right": st.none() | st.booleans(),
            "texts": st.none() | st.lists(TEXTS, max_size=2),
            "objects": st.none() | st.lists(OBJECTS | st.none(), max_size=2),
        }
    ),
    max_size=4,
)
OTHERS = [
    {"name": "x", "n": 9, "logprob": 0.5, "is_right": True, "texts": ["yy"], "objects": []},
    {"name": "zzz", "n": 8, "texts": ["y", "z"], "objects": [{"object_id": "Q1"}]},
]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def stored_otherwise(whole: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same rows through Parquet and between others: in one chunk, and in two."""
    sink, n, other = io.BytesIO(), whole.num_rows, table(OTHERS)
    between = pa.concat_tables([other, whole, other])
    pq.write_table(between, sink, use_dictionary=False, version="1.0")
    found = pq.read_table(sink).cast(SCHEMA).slice(other.num_rows, n)
    return found, pa.concat_tables([found.slice(0, n // 2), found.slice(n // 2)])


@given(ROWS)
def test_digest_is_of_the_values_however_they_are_stored(rows: list[dict[str, Any]]) -> None:
    whole = table(rows)
    assert {digest(each) for each in stored_otherwise(whole)} == {digest(whole)}


@given(ROWS, ROWS)
def test_digest_other_rows_have_another(
    rows: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    one, other = table(rows), table(others)
    is_same = repr(one.to_pylist()) == repr(other.to_pylist())  # which knows -0.0
    assert (digest(one) == digest(other)) == is_same


def test_digest_what_is_nearly_the_same_has_another() -> None:
    lists = pa.list_(pa.string())
    near = [
        pa.table({"a": ["ab", "c"]}),
        pa.table({"a": ["a", "bc"]}),
        pa.table({"a": ["ab", "c", None]}),
        pa.table({"a": [None, "ab", "c"]}),
        pa.table({"a": ["ab", "c", ""]}),
        pa.table({"b": ["ab", "c"]}),
        pa.table({"a": pa.array([["ab"], ["c"]], lists)}),
        pa.table({"a": pa.array([["ab", "c"], []], lists)}),
        pa.table({"a": pa.array([["ab", "c"], None], lists)}),
        pa.table({"a": pa.array([1, 2], pa.uint16())}),
        pa.table({"a": pa.array([1, 2], pa.uint32())}),
        pa.table({"a": pa.array([None, None], pa.uint32())}),
        pa.table({"a": pa.array([None, None], pa.string())}),
        pa.table({"a": pa.array([None], pa.string())}),
    ]
    assert len({digest(each) for each in near}) == len(near)

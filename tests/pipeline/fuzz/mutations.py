"""What hypothesis makes of something valid: odd values in its places, and damaged files."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import polars as pl
from hypothesis import strategies as st

ODD_TEXTS = st.sampled_from(
    (
        *("", " ", "\0", "\n", "é", "x" * 5000, "../..", "/", "[", "{", "'", '"', "${seed}", "="),
        *("null", "nan", ".inf", "-1", "1e999", "9" * 30, "[X]", "[Y]", "true", "~", "a=b"),
    )
)
ODD_NUMBERS = st.sampled_from(
    [0, -1, 1, 0.5, 10**9, 10**18, 10**30, -(10**30), 1e308, float("inf"), float("nan")]
)
# Lists and objects are made anew for each example: what is drawn may be changed in place.
ODD_HOLDERS = st.builds(list) | st.builds(dict) | st.builds(lambda: [[None]])
ODD = st.one_of(ODD_TEXTS, ODD_NUMBERS, st.booleans(), st.none(), ODD_HOLDERS) | st.recursive(
    st.text(max_size=5) | st.integers(-3, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@st.composite
def mutated(draw: st.DrawFn, value: Any, times: int = 2) -> Any:
    """A value of JSON with a few of its parts replaced, dropped or renamed."""
    found = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, times))):
        found = _once(draw, found)
    return found


def _holds(value: Any) -> bool:
    return isinstance(value, list | dict)


def _once(draw: st.DrawFn, value: Any) -> Any:
    inner = list(value if isinstance(value, dict) else range(len(value))) if _holds(value) else []
    if not inner or draw(st.integers(0, 9)) == 0:
        return draw(ODD)
    place = draw(st.sampled_from(inner))
    match draw(st.sampled_from(["into", "into", "into", "drop", "new"])):
        case "into":
            value[place] = _once(draw, value[place])
        case "drop":
            del value[place]
        case "new" if isinstance(value, dict):
            value[draw(st.text(max_size=5))] = draw(ODD)
        case _:
            value.append(draw(ODD)) if isinstance(value, list) else None
    return value


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes that are cut, flipped, doubled, or others altogether."""
    if not content or draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=50))
    at = draw(st.integers(0, len(content) - 1))
    match draw(st.sampled_from(["cut", "flip", "insert", "tail"])):
        case "cut":
            return content[:at]
        case "flip":
            other = content[at] ^ draw(st.integers(1, 255))
            return content[:at] + bytes([other]) + content[at + 1 :]
        case "insert":
            return content[:at] + draw(st.binary(min_size=1, max_size=8)) + content[at:]
        case _:
            return content[at:]


def as_text(rows: Sequence[dict[str, Any]], kind: str) -> bytes:
    """Rows as a JSONL, JSON, CSV or TSV file."""
    if kind == "jsonl":
        return "\n".join(json.dumps(row) for row in rows).encode()
    if kind == "json":
        return json.dumps(list(rows)).encode()
    file, records = io.StringIO(), [row for row in rows if isinstance(row, dict)]
    names = list(dict.fromkeys(name for row in records for name in row))
    writer = csv.DictWriter(file, names, delimiter="," if kind == "csv" else "\t")
    writer.writeheader()
    for row in records:
        writer.writerow({k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()})
    return file.getvalue().encode(errors="replace")


ODD_CELLS: tuple[Any, ...] = (1, -0.5, True, "a", [1], ["a"], [["a"]], {"a": 1}, b"a", None)


@st.composite
def parquet(draw: st.DrawFn, rows: pl.DataFrame) -> bytes:
    """A Parquet file of the rows with a column dropped, renamed, emptied or of another type."""
    name = draw(st.sampled_from(rows.columns))
    match draw(st.sampled_from(["drop", "rename", "null", "type", "empty", "some", "twice"])):
        case "drop":
            rows = rows.drop(name)
        case "rename":
            rows = rows.rename({name: draw(st.text(min_size=1, max_size=4)) + "_"})
        case "null":
            rows = rows.with_columns(pl.lit(None, rows.schema[name]).alias(name))
        case "type":
            odd = draw(st.sampled_from(ODD_CELLS))
            rows = rows.with_columns(pl.Series(name, [odd] * rows.height))
        case "empty":
            rows = rows.clear()
        case "some":
            keep = draw(st.lists(st.booleans(), min_size=rows.height, max_size=rows.height))
            rows = rows.with_columns(pl.when(pl.Series(keep)).then(pl.col(name)).alias(name))
        case _:
            rows = pl.concat([rows, rows])
    file = io.BytesIO()
    rows.write_parquet(file)
    return file.getvalue()

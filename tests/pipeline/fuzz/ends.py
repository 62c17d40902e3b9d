"""How a command ends, and what it is given: overrides, and files that were changed or damaged."""

import contextlib
import csv
import gzip
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from factsweep.pipeline.cli import main
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import compose_config

# An example is a whole command here, and takes a second: of many, a third.
EXAMPLES = max(10, settings.default.max_examples // 3)
fuzz = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
KINDS = ("jsonl", "json", "csv", "tsv")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def command(*arguments: str) -> Ended:
    """Run a command in this process, with the environment as it was afterwards."""
    out, err, old_home = io.StringIO(), io.StringIO(), os.environ.get(folders.VARIABLE)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stopped:  # of argparse, which refuses options and verbs
            code = int(stopped.code or 0)
        finally:
            os.environ.pop(folders.VARIABLE, None)
            os.environ.update({} if old_home is None else {folders.VARIABLE: old_home})
    return Ended(code, out.getvalue(), err.getvalue())


def ends_well(*arguments: str) -> Ended:
    """Run a command; it gives a result, or refuses in one sentence."""
    ended = command(*arguments)
    assert "Traceback" not in ended.err, ended.err
    has_result = ended.out and arguments[0] in (
        "verify",
        "catalog",
    )  # what they found is their result
    if ended.code and not has_result and "usage: factsweep" not in ended.err:
        assert ended.code in (1, 2), ended
        first, *further_lines = ended.err.splitlines()
        assert first.startswith("factsweep: "), ended.err
        assert first.endswith((".", "?")), ended.err
        # A table may stand below the sentence: the columns that were expected and found.
        assert not any(line.startswith("factsweep: ") for line in further_lines), ended.err
    return ended


def names(values: Any, prefix: str = "") -> Iterator[str]:
    """The dotted names of all fields and groups of conf/."""
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from names(value, f"{prefix}{name}.")


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
    content = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, times))):
        content = _once(draw, content)
    return content


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
    position = draw(st.integers(0, len(content) - 1))
    match draw(st.sampled_from(["cut", "flip", "insert", "tail"])):
        case "cut":
            return content[:position]
        case "flip":
            other = content[position] ^ draw(st.integers(1, 255))
            return content[:position] + bytes([other]) + content[position + 1 :]
        case "insert":
            return content[:position] + draw(st.binary(min_size=1, max_size=8)) + content[position:]
        case _:
            return content[position:]


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


NAMES = [*names(compose_config([])), "hydra", "defaults", "nope"]
VALUES = ODD.map(lambda v: v if isinstance(v, str) else json.dumps(v)) | ODD.map(repr) | st.text()
OVERRIDES = (
    st.builds("{}={}".format, st.sampled_from(NAMES), VALUES)
    | st.builds("{}{}={}".format, st.sampled_from("+~@"), st.sampled_from(NAMES), VALUES)
    | st.text(max_size=10)
)


class File(NamedTuple):
    name: str
    content: bytes

    def written(self, folder: Path) -> Path:
        """The path of the file, in a folder."""
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content)
        return path


def tables(rows: pl.DataFrame) -> st.SearchStrategy[File]:
    """Files of rows that were changed before they were written, or damaged afterwards."""
    plain, file = rows.to_dicts(), io.BytesIO()
    rows.write_parquet(file)
    zipped = gzip.compress(as_text(plain, "jsonl"))
    return st.one_of(
        *(mutated(plain).map(lambda content, k=kind: written(content, k)) for kind in KINDS),
        *(damaged(as_text(plain, kind)).map(lambda c, k=kind: File(f"a.{k}", c)) for kind in KINDS),
        damaged(file.getvalue()).map(lambda content: File("a.parquet", content)),
        parquet(rows).map(lambda content: File("a.parquet", content)),
        damaged(zipped).map(lambda content: File("a.jsonl.gz", content)),
    )


def written(content: Any, kind: str) -> File:
    return File(f"a.{kind}", as_text(content if isinstance(content, list) else [], kind))


def dumped(content: Any) -> bytes:
    return str(yaml.safe_dump(content, allow_unicode=True)).encode()

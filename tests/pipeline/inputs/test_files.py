"""Tables as people have them read as the same rows, in every format, compression and encoding."""

import bz2
import gzip
import io
import json
import lzma
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from factsweep.operators.errors import InputError
from factsweep.pipeline.inputs.files import scan
from tests.messages import naming

_COLUMNS = ["relation", "template", "subject", "object"]
_CSV = b"relation,subject,object\ncapital,France,Paris\n"
_ROW = {"relation": "capital", "subject": "France", "object": "Paris"}


def _zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


def _ipc(rows: pl.DataFrame) -> bytes:
    return rows.write_ipc(None).getvalue()


def _parquet(rows: pl.DataFrame) -> bytes:
    with tempfile.TemporaryFile() as file:
        rows.write_parquet(file)
        file.seek(0)
        return file.read()


FORMATS: Mapping[str, Callable[[pl.DataFrame], bytes]] = {
    "plain.csv": lambda rows: rows.write_csv().encode(),
    "UPPER.CSV": lambda rows: rows.write_csv().encode(),
    "quoted.csv": lambda rows: rows.write_csv(quote_style="always").encode(),
    "dos.csv": lambda rows: rows.write_csv(line_terminator="\r\n").encode(),
    "old.csv": lambda rows: rows.write_csv(line_terminator="\r").encode(),
    "mark.csv": lambda rows: rows.write_csv(include_bom=True).encode(),
    "utf16.csv": lambda rows: rows.write_csv().encode("utf-16"),
    "semicolons.csv": lambda rows: rows.write_csv(separator=";").encode(),
    "said.csv": lambda rows: b"sep=|\n" + rows.write_csv(separator="|").encode(),
    "tabs.csv": lambda rows: rows.write_csv(separator="\t").encode(),
    "tabs.tsv": lambda rows: rows.write_csv(separator="\t").encode(),
    "tabs.txt": lambda rows: rows.write_csv(separator="\t").encode(),
    "lines.jsonl": lambda rows: rows.write_ndjson().encode(),
    "mark.jsonl": lambda rows: rows.write_ndjson().encode("utf-8-sig"),
    "list.json": lambda rows: rows.write_json().encode(),
    "lines.json": lambda rows: rows.write_ndjson().encode(),
    "rows.parquet": _parquet,
    "rows.arrow": _ipc,
    "packed.csv.gz": lambda rows: gzip.compress(rows.write_csv().encode()),
    "packed.CSV.BZ2": lambda rows: bz2.compress(rows.write_csv().encode()),
    "packed.jsonl.xz": lambda rows: lzma.compress(rows.write_ndjson().encode()),
    "packed.json.zst": lambda rows: _zstd(rows.write_json().encode()),
}
# Without line ends, which tables of tabs cannot have, and controls, which own tables refuse.
_VALUES = st.text(
    st.characters(exclude_categories=("C", "Zl", "Zp")), min_size=1
) | st.sampled_from(
    ['"Weird Al" Yankovic', '5" disk', "a, b; c", "007", "1.50", "1e5", "true", "2020-01-01", "[X]"]
)


@given(rows=st.lists(st.tuples(*[_VALUES] * len(_COLUMNS)), min_size=1, max_size=4))
def test_scan_any_format_reads_the_same_rows(rows: list[tuple[str, ...]]) -> None:
    table = pl.DataFrame(rows, _COLUMNS, orient="row")
    with tempfile.TemporaryDirectory() as folder:
        for name, written in FORMATS.items():
            path = Path(folder, name)
            path.write_bytes(written(table))
            assert_frame_equal(scan([path], as_written=True).collect(), table)


@given(
    name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(["facts[1]", "facts*", "fact?1", "{a,b}", "**", "${x}", "~", "a b", "#'\"%"])
)
def test_scan_any_path_is_a_path(name: str) -> None:
    table = pl.DataFrame([_ROW])
    with tempfile.TemporaryDirectory() as folder:
        for format_, written in FORMATS.items():
            path = Path(folder, f"{name}-{format_}")
            path.write_bytes(written(table))
            decoy = Path(folder, f"facts1-{format_}")
            if decoy != path:
                decoy.write_bytes(b"another file")
            assert_frame_equal(scan([path]).collect(), table)


def test_scan_quotation_marks_are_parts_of_values_where_they_enclose_none(tmp_path: Path) -> None:
    for name, content, values in (
        ("a.tsv", 'a\tb\n"Weird Al" Y\tx\n', ('"Weird Al" Y', "x")),
        ("b.tsv", 'a\tb\n"Heroes\tx\n', ('"Heroes', "x")),
        ("c.tsv", 'a\tb\n"a ""b"""\tx\n', ('a "b"', "x")),
        ("d.csv", 'a,b\n5" disk,x\n', ('5" disk', "x")),
    ):
        path = tmp_path / name
        path.write_text(content)
        assert scan([path]).collect().rows() == [values], name


def test_scan_values_of_several_types_are_texts_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    written = ['"x"', "1.50", "1e5", "true", "12345678901234567890123", "null", '["y", 2.50]']
    path.write_text("".join(f'{{"a": {value}, "n": 1}}\n' for value in written))
    rows = scan([path]).collect()
    as_texts = ["x", "1.50", "1e5", "true", "12345678901234567890123", None, '["y", "2.50"]']
    assert rows["a"].to_list() == as_texts
    assert rows["n"].to_list() == [1] * len(written)
    path.write_text('{"a": 1.50}\n{"a": 2}\n')
    assert scan([path]).collect()["a"].to_list() == [1.5, 2.0]
    assert scan([path], as_written=True).collect()["a"].to_list() == ["1.50", "2"]


@pytest.mark.parametrize("value", ['["x"]', "5", "1.5", "true", '{"text": "x"}'])
def test_scan_other_values_among_texts_of_a_field_are_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "answers.jsonl"
    rows = [f'{{"text": {value}}}', '{"text": "Paris"}']
    for line, ordered in ((1, rows), (2, rows[::-1])):
        path.write_text("\n".join(ordered))
        with pytest.raises(InputError, match=naming(f"{path}, line {line}", "text is a")):
            scan([path], texts=["text"])
    path.write_text('{"text": null}\n{"text": "Paris"}\n')
    assert scan([path], texts=["text"]).collect()["text"].to_list() == [None, "Paris"]


def _wide(write: Callable[[pl.DataFrame, io.BytesIO], object]) -> bytes:
    """A file with more columns than are read."""
    file = io.BytesIO()
    write(pl.DataFrame({str(column): [1] for column in range(2_000)}), file)
    return file.getvalue()


_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"
_REFUSED: Mapping[str, tuple[bytes, tuple[str, ...]]] = {
    "facts.xlsx": (b"PK\x03\x04", ("spreadsheet", "soffice --headless --convert-to")),
    "my facts.ods": (b"PK\x03\x04", ("spreadsheet", "/my facts.ods'")),
    "facts.xls": (b"\xd0\xcf\x11\xe0", ("spreadsheet",)),
    "facts.zip": (b"PK\x03\x04", ("ZIP", "unzip")),
    "facts.db": (b"SQLite format 3\0", ("database", "sqlite3")),
    "pointer.csv": (_POINTER, ("git-lfs", "git lfs pull")),
    "pointer.parquet": (_POINTER, ("git-lfs", "git lfs pull")),
    "page.csv": (b"<!DOCTYPE html><html>", ("HTML",)),
    "empty.csv": (b"", ("is empty",)),
    "blank.jsonl": (b"\n\n", ("is empty",)),
    "none.json": (b"[]", ("no rows",)),
    "little.csv": (_CSV.decode().encode("utf-16-le"), ("UTF-16", "iconv -f UTF-16LE")),
    "big.tsv": (_CSV.decode().encode("utf-16-be"), ("UTF-16", "iconv -f UTF-16BE")),
    "four.jsonl": (b'{"a": "x"}\n'.decode().encode("utf-32-le"), ("iconv -f UTF-32LE",)),
    "old.csv": ("a,b\nÖsterreich,Wien\n".encode("latin-1"), ("0xd6 in line 2", "iconv -f")),
    "cut.csv.gz": (gzip.compress(_CSV)[:-9], ("fetch or copy",)),
    "cut.csv.zst": (_zstd(_CSV)[:-9], ("fetch or copy",)),
    "open.csv": (b'a,b\n"x,y\n', ("line 2", "quotation mark")),
    "within.csv": (b'a,b\nx,y\n"Weird Al" Y,x\n', ("line 3", "quotation mark")),
    "wide.csv": (b"a,b\n1,2,3\n", ("line 2", "3 values", "comma")),
    "twice.csv": (b"a,b,a\n1,2,3\n", ("column a twice",)),
    "notes.md": (b"# facts\n", (".csv, .tsv", ".parquet")),
    "value.jsonl": (b'{"a": 1}\n5\n', ("line 2", "object")),
    "nan.jsonl": (b'{"a": NaN}\n', ("line 1", "NaN")),
    "half.json": (b'[{"a": "\\ud800"}]', ("surrogates",)),
    "deep.json": (b"[" * 100_000, ("no JSON",)),
    "columns.csv": (b"c," * 1_000_000, ("1,000,001 columns", "at most 1,000")),
    "separated.csv": (b"sep=;\n" + b"c;" * 1_000_000, ("1,000,001 columns", "at most 1,000")),
    "keys.json": (json.dumps([dict.fromkeys(map(str, range(2_000)))]).encode(), ("at most 1,000",)),
    "each.jsonl": (b"".join(b'{"%d": 1}\n' % row for row in range(2_000)), ("at most 1,000",)),
    "columns.parquet": (_wide(pl.DataFrame.write_parquet), ("2,000 columns",)),
    "columns.arrow": (_wide(pl.DataFrame.write_ipc), ("2,000 columns",)),
    "line.csv": (b"a,b\n" + b"x" * 10_000_001, ("line 2", "10,000,001 characters")),
    "line.jsonl": (b'{"a": "%s"}\n' % (b"x" * 10_000_001), ("line 1", "characters")),
}


def test_scan_what_is_no_table_is_refused_with_the_way(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name, (content, words) in _REFUSED.items():
        path = tmp_path / name
        path.write_bytes(content)
        with subtests.test(name), pytest.raises(InputError, match=naming(name, *words)):
            scan([path]).collect()


def test_scan_json_of_several_lines_names_its_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([_ROW, [1]], indent=1))
    with pytest.raises(InputError, match=naming(path, "row 1", "object")):
        scan([path])


def test_scan_blank_lines_and_lines_of_separators_are_no_rows(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("subject,object\n\nPeru,Lima\n,\n,Oslo\n\n\n")
    assert scan([table]).collect().rows() == [("Peru", "Lima"), (None, "Oslo")]


@pytest.mark.parametrize("content", ['{"object": {"0": "Lima"}}', '{"columns": ["a"], "data": []}'])
def test_scan_json_that_holds_all_rows_in_one_object_names_the_way(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "facts.json").write_text(content)
    with pytest.raises(InputError, match=r"facts\.json is one object .*orient='records'"):
        scan([tmp_path / "facts.json"])

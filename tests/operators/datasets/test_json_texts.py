"""JSON is refused, with its place, where two libraries would read two things in it."""

import json
from pathlib import Path

import pytest

from factsweep.operators.datasets.table_files import json_lines, parse_json
from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.inputs.files import read_content
from tests.messages import naming

REFUSED = {
    '{"a": 1, "a": 2}': "'a' stands twice",
    '[{"b": {"a": 1, "c": 0, "a": 1}}]': "'a' stands twice",
    r'{"label": "\ud800q"}': r"\ud800",
    r'{"label": "q\uDE80"}': r"\ude80",
    r'{"\uD83D": 1}': r"\ud83d",
    "{": "no JSON",
    "": "no JSON",
}


@pytest.mark.parametrize("text", ['{"a": {"a": 1}, "b": "\\ud83d\\ude80"}', r'"C:\\udata"', "[]"])
def test_parsed_text_is_what_json_says(text: str) -> None:
    assert parse_json(text, "x") == json.loads(text)


def test_ambiguous_text_is_refused_with_its_place(subtests: pytest.Subtests) -> None:
    for text, words in REFUSED.items():
        with subtests.test(text), pytest.raises(InputError, match=naming("f.jsonl, line 7", words)):
            parse_json(text, "f.jsonl, line 7")


@pytest.mark.parametrize("name", ["facts.jsonl", "facts.json"])
def test_rows_of_a_file_are_refused_with_its_line(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / name, ['{"a": "x"}', '{"a": "y", "a": "z"}']
    path.write_text("\n".join(rows) if name.endswith("l") else f"[{', '.join(rows)}]")
    for kind in ("rows", "tables"):
        with pytest.raises(InputError, match=naming(name, "'a' stands twice")):
            read_content([path], kind)
    path.write_bytes(b"")
    with pytest.raises(DamagedFileError, match=naming(name, "is empty")):
        read_content([path], "rows")


def test_json_lines_fields_of_two_kinds_become_texts_and_others_stay() -> None:
    rows = '{"a": "x", "b": 1, "c": 1}\n{"a": ["y"], "b": true, "c": 1.50}'
    values = [json.loads(line) for line in json_lines(rows, "f", (), as_written=False).splitlines()]
    assert values == [{"a": "x", "b": "1", "c": 1}, {"a": '["y"]', "b": "true", "c": 1.5}]

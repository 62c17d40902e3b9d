"""JSON files that are not whole are refused in one sentence."""

import pytest

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.storage.store import StoredFile, from_json, to_json
from tests.messages import naming

FILE = StoredFile("here/f.json", "f.json")


def test_from_json_is_what_was_written() -> None:
    content = {"a": 1, "file": "é"}
    assert from_json(to_json(content), FILE, "a") == content


def test_from_json_of_an_earlier_version_has_no_checksum() -> None:
    assert from_json(b'{"a": 1, "file": "f.json", "sha256": "0"}', FILE) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "is empty"),
        (b"[1]", "no JSON object"),
        (b"null", "no JSON object"),
        (b"{}", "lacks a"),
        (b"[" * 100_000, "not whole"),
        *((to_json({"a": "text"})[:end], "not whole") for end in range(1, 15)),
    ],
)
def test_from_json_that_is_not_whole_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(
        DamagedFileError, match=naming("here/f.json", problem, "to fix it")
    ) as error:
        from_json(text, FILE, "a", fix="; do that to fix it.")
    assert error.value.name == "f.json"

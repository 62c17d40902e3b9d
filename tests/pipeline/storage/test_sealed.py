"""JSON with a checksum of its own: whole and unchanged, or refused."""

import contextlib
import json

import pytest

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.storage.sealed import seal, unseal
from tests.messages import naming

CONTENT = {"a": 1, "b": [1.5, "é", None], "c": {"d": True}}


def test_unseal_sealed_content_is_the_same() -> None:
    assert unseal(seal(CONTENT, "f.json"), "f.json", "here") == CONTENT


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", "is empty"),
        (b"{", "is not whole JSON"),
        (b"\xff\xfe", "is not whole JSON"),
        (b"[" * 100_000, "is not whole JSON"),
        (b"[1]", "has no checksum"),
        (b"3", "has no checksum"),
        (b'{"a": 1}', "has no checksum"),
        (b'{"a": 1, "sha256": null}', "is not what its checksum says"),
    ],
)
def test_unseal_something_else_says_what_it_is(text: bytes, found: str) -> None:
    with pytest.raises(
        DamagedFileError, match=f"^here {found}.*`factsweep verify --all --repair` sets it aside"
    ):
        unseal(text, "f.json", "here")


def test_unseal_any_byte_changed_or_cut_is_refused_or_changes_nothing() -> None:
    text = seal(CONTENT, "f.json")
    for place in range(len(text)):
        changed = text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]
        for damaged in (changed, text[:place]):
            with contextlib.suppress(DamagedFileError):
                assert unseal(damaged, "f.json", "here") == CONTENT


def test_unseal_edited_value_is_refused() -> None:
    edited = {**json.loads(seal(CONTENT, "f.json")), "a": 2}
    with pytest.raises(DamagedFileError, match=naming("checksum", "says")):
        unseal(json.dumps(edited).encode(), "f.json", "here")


def test_unseal_content_of_another_file_is_refused() -> None:
    with pytest.raises(DamagedFileError, match=naming("g.json")):
        unseal(seal(CONTENT, "g.json"), "f.json", "here")

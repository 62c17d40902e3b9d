"""JSON files: how they are written, and refused in one sentence where they are not whole."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from factsweep.operators.errors import DamagedFileError

# How a sentence about a damaged file ends: one in a store of artifacts, one in results.
REPAIR = "; `factsweep verify --all --repair` sets it aside, and the next run computes it anew."
RERUN = "; run again: it is written anew."


class Stored(NamedTuple):
    """A file as messages call it (`where`), and its name in its store; null: it is of results."""

    where: str
    name: str | None = None

    def damaged(self, what: str, fix: str = "") -> DamagedFileError:
        """The error that says what is wrong with it; `fix` ends the sentence."""
        fix = fix or (RERUN if self.name is None else REPAIR)
        return DamagedFileError(f"{self.where} {what}{fix}", self.name)


def digest(content: Any) -> str:
    """The SHA-256 of a value as JSON, whatever the order of its keys.

    >>> digest({"a": 1, "b": (2,)}) == digest({"b": [2], "a": 1})
    True
    """
    same = json.loads(json.dumps(content))
    text = json.dumps(same, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def to_json(content: Mapping[str, Any]) -> bytes:
    """The content of a JSON file."""
    return json.dumps(content, indent=1).encode()


def from_json(text: bytes, file: Stored, *fields: str, fix: str = REPAIR) -> dict[str, Any]:
    """The content of a JSON file, which has at least these fields.

    Raises:
        DamagedFileError: it is no whole JSON, or lacks one; `fix` ends the sentence.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = "is empty" if not text else f"is not whole JSON ({error})"
        raise file.damaged(what, fix) from error
    if not isinstance(content, dict):
        raise file.damaged("is no JSON object", fix)
    if "sha256" in content:  # earlier versions added the file's name and a checksum
        del content["sha256"]
        content.pop("file", None)
    if lacking := [field for field in fields if field not in content]:
        raise file.damaged(f"lacks {lacking[0]}", fix)
    return content

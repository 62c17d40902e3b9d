"""JSON files: how they are written, and one-sentence errors for damaged ones."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from factsweep.operators.errors import DamagedFileError

# The last part of messages on damaged files: in a store of artifacts, and in results.
REPAIR = "; `factsweep verify --all --repair` quarantines it, and the next run recomputes it."
RERUN = "; run again: it is rewritten."


class Stored(NamedTuple):
    """A file: its path or URL in messages, and its name in its store (None: a results file)."""

    where: str
    name: str | None = None

    def damaged(self, problem: str, fix: str = "") -> DamagedFileError:
        """The error for a damaged file; `fix` ends the sentence."""
        fix = fix or (RERUN if self.name is None else REPAIR)
        return DamagedFileError(f"{self.where} {problem}{fix}", self.name)


def digest(content: Any) -> str:
    """The SHA-256 of a value as JSON, independent of the order of keys.

    >>> digest({"a": 1, "b": (2,)}) == digest({"b": [2], "a": 1})
    True
    """
    canonical = json.loads(json.dumps(content))
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def to_json(content: Mapping[str, Any]) -> bytes:
    """The content of a JSON file."""
    return json.dumps(content, indent=1).encode()


def from_json(text: bytes, file: Stored, *fields: str, fix: str = REPAIR) -> dict[str, Any]:
    """Parse a JSON file that must have these fields.

    Raises:
        DamagedFileError: it is not valid JSON, or lacks a field; `fix` ends the sentence.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = "is empty" if not text else f"is not whole JSON ({error})"
        raise file.damaged(problem, fix) from error
    if not isinstance(content, dict):
        raise file.damaged("is no JSON object", fix)
    if "sha256" in content:  # earlier versions added the file's name and a checksum
        del content["sha256"]
        content.pop("file", None)
    if missing_fields := [field for field in fields if field not in content]:
        raise file.damaged(f"lacks {missing_fields[0]}", fix)
    return content

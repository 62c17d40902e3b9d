"""JSON that is checked when it is read: it holds its own name and the SHA-256 of its content.

A file that was cut, emptied, edited, damaged or taken from elsewhere is refused in one sentence.
The checksum is no signature: whoever writes a file on purpose can write its checksum, too.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from factsweep.operators.errors import DamagedFileError

# How a sentence about a damaged file ends: one in a store of artifacts, one in results.
REPAIR = "; `factsweep verify --all --repair` sets it aside, and the next run computes it anew."
RERUN = "; run again: it is written anew."

_NAME, _SEAL = "file", "sha256"


class Stored(NamedTuple):
    """A file as messages call it (`where`), and its name in its store; null: it is in none."""

    where: str
    name: str | None = None

    def damaged(self, what: str) -> DamagedFileError:
        """The error that says what is wrong with it."""
        return DamagedFileError(f"{self.where} {what}{REPAIR}", self.name)


def digest(content: Any) -> str:
    """The SHA-256 of a value as JSON, whatever the order of its keys.

    >>> digest({"a": 1, "b": (2,)}) == digest({"b": [2], "a": 1})
    True
    """
    same = json.loads(json.dumps(content))
    text = json.dumps(same, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def seal(content: Mapping[str, Any], file: str) -> bytes:
    """The content as JSON, with the name of its file and the checksum of it all."""
    named = {**content, _NAME: file}
    return json.dumps({**named, _SEAL: digest(named)}, indent=1).encode()


def unseal(text: bytes, file: str, where: str, fix: str = REPAIR) -> dict[str, Any]:
    """The content that was sealed under the name of a file; `where` is what messages call it.

    Raises:
        DamagedFileError: it is no JSON, not what was sealed, or another file; `fix` ends it.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        found = "is empty" if not text else f"is not whole JSON ({error})"
        raise DamagedFileError(f"{where} {found}{fix}", file) from error
    if not isinstance(content, dict) or _SEAL not in content:
        raise DamagedFileError(f"{where} has no checksum{fix}", file)
    sealed = content.pop(_SEAL)
    if sealed != digest(content):
        raise DamagedFileError(f"{where} is not what its checksum says{fix}", file)
    found = content.pop(_NAME, None)
    if found != file:
        raise DamagedFileError(f"{where} belongs elsewhere: it is {found}{fix}", file)
    return content

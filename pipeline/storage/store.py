"""Where artifacts are stored: a folder or an object store; a file exists whole or not at all.

Damaged JSON files are refused in one sentence.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from factsweep.operators.errors import DamagedFileError, InputError, UnavailableError
from factsweep.operators.wording.redaction import redactor
from factsweep.pipeline.config.folders import is_url
from factsweep.pipeline.storage.folder import Folder
from factsweep.pipeline.storage.object_store import ATTEMPTS, File, ObjectStore

# The last part of messages on damaged files: in a store of artifacts, and in results.
REPAIR = "; `factsweep verify --all --repair` quarantines it, and the next run recomputes it."
RERUN = "; run again: it is rewritten."


class StoredFile(NamedTuple):
    """A file: its path or URL in messages, and its name in its store (None: a results file)."""

    where: str
    name: str | None = None

    def damaged_file_error(self, problem: str, fix: str = "") -> DamagedFileError:
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


def from_json(text: bytes, file: StoredFile, *fields: str, fix: str = REPAIR) -> dict[str, Any]:
    """Parse a JSON file that must have these fields.

    Raises:
        DamagedFileError: it is not valid JSON, or lacks a field; `fix` ends the sentence.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = "is empty" if not text else f"is not whole JSON ({error})"
        raise file.damaged_file_error(problem, fix) from error
    if not isinstance(content, dict):
        raise file.damaged_file_error("is no JSON object", fix)
    if "sha256" in content:  # earlier versions added the file's name and a checksum
        del content["sha256"]
        content.pop("file", None)
    if missing_fields := [field for field in fields if field not in content]:
        raise file.damaged_file_error(f"lacks {missing_fields[0]}", fix)
    return content


T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16  # requests to an object store
_WRITERS = 3  # of a folder: one waits for the disk while others pack
_QUARANTINE = "damaged"  # the folder of quarantined files


@dataclass(frozen=True)
class Store:
    """Files under `root`: a path, or a URL: s3://, gs:// or az://.

    Where a file cannot be read or written, all methods raise an InputError, or an UnavailableError
    if an object store did not answer in all attempts.
    """

    root: str

    @cached_property
    def _files(self) -> Folder | ObjectStore:
        scheme, _, path = self.root.rpartition("://")
        if scheme in ("", "file"):
            return Folder(Path(path).absolute())
        return ObjectStore(self.root)

    def free(self) -> int | None:
        """The free bytes of the disk of a folder; None for a URL."""
        return self._files.free()

    def __reduce__(self) -> tuple[type["Store"], tuple[str]]:
        return Store, (self.root,)  # connections stay in the process that opened them

    def put(self, name: str, content: bytes) -> None:
        """Publish or replace a file; a DamagedFileError if a folder has its name."""
        with self._explain_errors(name, "written"):
            self._files.put(name, content)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A file that the block writes in parts; published at its end, and not if it fails."""
        with self._explain_errors(name, "written"), self._files.writing(name) as file:
            yield file

    def put_new(self, name: str, content: bytes) -> bool:
        """Publish a file unless the name is taken; whether its content is now `content`.

        Of several writers at once exactly one succeeds.
        """
        with self._explain_errors(name, "written"):
            created = self._files.create(name, content)
        if created:
            return True
        try:  # a request that was sent twice, since its answer was lost, finds its own file
            return self.get(name) == content
        except (OSError, InputError):
            return False  # it was removed, or is no file

    def get(self, name: str, last_bytes: int | None = None) -> bytes:
        """The content of a file, or its end.

        Raises:
            FileNotFoundError: there is no file of that name.
            DamagedFileError: it is a folder, or a link out of the store.
        """
        try:
            return self._files.get(name, last_bytes)
        except FileNotFoundError as error:
            raise FileNotFoundError(self.where(name)) from error
        except ConnectionError as error:
            raise self._unavailable_error(name, "read", error) from error
        except OSError as error:
            far = "that it is there, the network, and the credentials in the environment"
            check = "its rights and its disk" if self._files.is_near else far
            raise InputError(
                f"{self.where(name)} cannot be read ({error.strerror or error}); check {check}."
            ) from error

    def put_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Publish or replace a JSON file."""
        self.put(name, to_json(content))

    def get_json(self, name: str, *fields: str, fix: str = REPAIR) -> dict[str, Any]:
        """The content of a JSON file that must have these fields; `fix` ends the error message.

        Raises:
            FileNotFoundError: there is no file of that name.
            DamagedFileError: it is not valid JSON, or lacks a field.
        """
        return from_json(self.get(name), StoredFile(self.where(name), name), *fields, fix=fix)

    def each(self, ask: Callable[[T], R], items: Collection[T]) -> list[R]:
        """The results of a request per item; sent to an object store in parallel."""
        if self._files.is_near or len(items) < 2:
            return list(map(ask, items))
        with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
            return list(pool.map(ask, items))

    def in_turn(self, ask: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Like `each`, but lazily, some items at a time, for results that do not fit in memory."""
        n = 1 if self._files.is_near else _AT_ONCE
        for start in range(0, len(items), n):
            yield from self.each(ask, items[start : start + n])

    def at_once(self, *requests: Callable[[], Any]) -> list[Any]:
        """The results of several requests; sent to an object store in parallel."""
        return self.each(lambda request: request(), requests)

    @property
    def writers(self) -> int:
        """The number of threads that publish fastest: object stores have a high latency."""
        return _WRITERS if self._files.is_near else _AT_ONCE

    def exists(self, name: str) -> bool:
        """Whether a file is published."""
        with self._explain_errors(name, "read"):
            return self._files.exists(name)

    def names(self, folder: str) -> list[str]:
        """The file names directly in a folder, sorted; empty if there is no such folder."""
        with self._explain_errors(folder, "read"):
            return sorted(self._files.names(folder))

    def folders(self, folder: str) -> list[str]:
        """The folders directly in a folder but `damaged`, sorted; empty if there is none."""
        with self._explain_errors(folder, "read"):
            return sorted(name for name in self._files.folders(folder) if name != _QUARANTINE)

    def sizes(self, folder: str) -> dict[str, int]:
        """The size of each file below a folder, in bytes, by its path in it; not of `damaged`."""
        files = self.files(folder).items()
        return {name: file.bytes for name, file in files if _QUARANTINE not in name.split("/")}

    def files(self, folder: str) -> dict[str, File]:
        """Each file below a folder, including `damaged`, by its path in it."""
        with self._explain_errors(folder, "read"):
            return self._files.files(folder)

    @property
    def drops_at_once(self) -> bool:
        """Whether one request removes many files."""
        return self._files.drops_at_once

    def drop(self, *names: str) -> None:
        """Remove the files that exist; a DamagedFileError if one is a folder."""
        with self._explain_errors(names[0], "removed"):
            self._files.drop(*names)

    def drop_empty(self, folder: str) -> None:
        """Remove a folder and the folders below it, where they are empty."""
        self._files.drop_empty(folder)

    def quarantine(self, name: str) -> str:
        """Move a file or folder to `damaged/` in its folder without replacing any; its new name."""
        folder, _, last = name.rpartition("/")
        for number in count():
            new_name = f"{folder}/{_QUARANTINE}/{last}{f'.{number}' if number else ''}".lstrip("/")
            with self._explain_errors(name, "moved"):
                if self._files.move(name, new_name):
                    return new_name
        raise AssertionError("numbers do not end")

    def where(self, name: str = "") -> str:
        """The path or URL of a file for messages, without credentials."""
        root = redactor()(self.root.partition("?")[0] if is_url(self.root) else self.root)
        return f"{root.rstrip('/')}/{name}".rstrip("/")

    @contextmanager
    def _explain_errors(self, name: str, verb: str) -> Iterator[None]:
        """Turn errors of an object store into one sentence."""
        try:
            yield
        except ConnectionError as error:
            raise self._unavailable_error(name, verb, error) from error
        except OSError as error:
            if self._files.is_near:
                raise
            raise InputError(
                f"{self.where(name)} cannot be {verb} ({error.strerror or error}); check the "
                "bucket, the network and the credentials in the environment; what is published is "
                "untouched."
            ) from error

    def _unavailable_error(self, name: str, verb: str, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"{self.where(name)} cannot be {verb} after {ATTEMPTS} attempts ({error}); check the "
            "network and the bucket, then run again: what is published is untouched."
        )

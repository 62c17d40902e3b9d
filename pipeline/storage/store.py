"""Where artifacts are stored: a folder or an object store; a file exists whole or not at all."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from factsweep.operators.errors import InputError, UnavailableError
from factsweep.operators.wording.redact import redactor
from factsweep.pipeline.config.folders import is_url
from factsweep.pipeline.storage.folder import Folder
from factsweep.pipeline.storage.json_files import REPAIR, Stored, from_json, to_json
from factsweep.pipeline.storage.object_store import ATTEMPTS, File, Remote

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16  # requests to an object store
_WRITERS = 3  # of a folder: one waits for the disk while others pack
_ASIDE = "damaged"  # the folder that keeps what was set aside


@dataclass(frozen=True)
class Store:
    """Files under `root`: a path, or a URL: s3://, gs:// or az://."""

    root: str

    @cached_property
    def _files(self) -> Folder | Remote:
        scheme, _, path = self.root.rpartition("://")
        if scheme in ("", "file"):
            return Folder(Path(path).absolute())
        return Remote(self.root)

    def free(self) -> int | None:
        """The bytes that are free on the disk of a folder; null of a URL."""
        return self._files.free()

    def __reduce__(self) -> tuple[type["Store"], tuple[str]]:
        return Store, (self.root,)  # connections stay in the process that opened them

    def put(self, name: str, content: bytes) -> None:
        """Publish a file: written aside, flushed, then renamed; on an object store one put.

        Raises:
            InputError: the folder cannot be written or the disk is full.
            DamagedFileError: a folder lies where the file should be.
        """
        with self._asking(name, "written"):
            self._files.put(name, content)

    def put_new(self, name: str, content: bytes) -> bool:
        """Publish a file unless there is one of that name; whether the file now is `content`.

        Of several at once exactly one succeeds: locally by a link, in a bucket by a conditional
        put.

        Raises:
            InputError: the file cannot be written.
        """
        with self._asking(name, "written"):
            created = self._files.create(name, content)
        # One that was sent twice, since the answer was lost, is there the second time.
        return created or self._is(name, content)

    def _is(self, name: str, content: bytes) -> bool:
        try:
            return self.get(name) == content
        except (OSError, InputError):
            return False  # it is gone again, or no file

    def get(self, name: str, last_bytes: int | None = None) -> bytes:
        """The content of a file, or its end.

        Raises:
            FileNotFoundError: there is none of that name.
            DamagedFileError: what is there is no file, or a link out of the store.
            InputError: it cannot be read.
        """
        try:
            return self._files.get(name, last_bytes)
        except FileNotFoundError as error:
            raise FileNotFoundError(self.where(name)) from error
        except ConnectionError as error:
            raise self._unavailable(name, "read", error) from error
        except OSError as error:
            raise InputError(
                f"{self.where(name)} cannot be read ({error.strerror or error}); check that it is "
                "there, the network, and the credentials in the environment."
            ) from error

    def put_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Publish a JSON file, or replace it."""
        self.put(name, to_json(content))

    def get_json(self, name: str, *fields: str, fix: str = REPAIR) -> dict[str, Any]:
        """The content of a JSON file, which has at least these fields.

        Raises:
            FileNotFoundError: there is none of that name.
            DamagedFileError: it is no whole JSON, or lacks a field; `fix` ends the sentence.
        """
        return from_json(self.get(name), Stored(self.where(name), name), *fields, fix=fix)

    def each(self, ask: Callable[[T], R], items: Collection[T]) -> list[R]:
        """What a function that asks the store says of each item; of an object store many at once.

        There an answer takes long, however little is asked.
        """
        if self._files.is_near or len(items) < 2:
            return list(map(ask, items))
        with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
            return list(pool.map(ask, items))

    def in_turn(self, ask: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """As `each`, of more than can be held at once: an object store is asked some at a time."""
        n = 1 if self._files.is_near else _AT_ONCE
        for start in range(0, len(items), n):
            yield from self.each(ask, items[start : start + n])

    def at_once(self, *asks: Callable[[], Any]) -> list[Any]:
        """What functions that ask the store say, in their order; an object store hears all at once.

        A folder is asked one after the other.
        """
        return self.each(lambda ask: ask(), asks)

    @property
    def writers(self) -> int:
        """How many threads publish much in the shortest time: an object store answers late."""
        return _WRITERS if self._files.is_near else _AT_ONCE

    def exists(self, name: str) -> bool:
        """Whether a file is published."""
        with self._asking(name, "read"):
            return self._files.exists(name)

    def names(self, folder: str) -> list[str]:
        """What lies right under a folder and is named like a file, sorted; none if it is not there.

        It may be no file: `get` says so.
        """
        with self._asking(folder, "read"):
            return sorted(self._files.names(folder))

    def folders(self, folder: str) -> list[str]:
        """The folders right under a folder but `damaged`, sorted; none if it is not there."""
        with self._asking(folder, "read"):
            return sorted(name for name in self._files.folders(folder) if name != _ASIDE)

    def sizes(self, folder: str) -> dict[str, int]:
        """The size of each file below a folder, in bytes, by its path in it; not of `damaged`."""
        found = self.files(folder)
        return {name: f.bytes for name, f in found.items() if _ASIDE not in name.split("/")}

    def files(self, folder: str) -> dict[str, File]:
        """Each file below a folder, by its path in it; those in `damaged` too."""
        with self._asking(folder, "read"):
            return self._files.files(folder)

    @property
    def drops_at_once(self) -> bool:
        """Whether many files are removed by one request."""
        return self._files.drops_at_once

    def drop(self, *names: str) -> None:
        """Remove files that are no longer needed, those that exist; of S3 all by one request.

        Raises:
            DamagedFileError: one is a folder.
        """
        with self._asking(names[0], "removed"):
            self._files.drop(*names)

    def drop_empty(self, folder: str) -> None:
        """Remove the folders below one, and itself, that hold nothing; a URL has none."""
        self._files.drop_empty(folder)

    def set_aside(self, name: str) -> str:
        """Move a file or folder to `damaged/` beside it, where nothing is replaced.

        Returns its new name. What is not there, or was moved by another process, is left.
        """
        folder, _, last = name.rpartition("/")
        for number in count():
            aside = f"{folder}/{_ASIDE}/{last}{f'.{number}' if number else ''}".lstrip("/")
            with self._asking(name, "moved"):
                if self._files.moved(name, aside):
                    return aside
        raise AssertionError("there is always another number")

    def where(self, name: str = "") -> str:
        """The path or URL of a file, for messages; without credentials."""
        root = redactor()(self.root.partition("?")[0] if is_url(self.root) else self.root)
        return f"{root.rstrip('/')}/{name}".rstrip("/")

    @contextmanager
    def _asking(self, name: str, what: str) -> Iterator[None]:
        """Say in one sentence that an object store refuses, or did not answer for minutes."""
        try:
            yield
        except ConnectionError as error:
            raise self._unavailable(name, what, error) from error
        except OSError as error:
            if self._files.is_near:
                raise
            raise InputError(
                f"{self.where(name)} cannot be {what} ({error.strerror or error}); check the "
                "bucket, the network and the credentials in the environment; what is published is "
                "untouched."
            ) from error

    def _unavailable(self, name: str, what: str, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"{self.where(name)} cannot be {what} after {ATTEMPTS} attempts ({error}); check the "
            "network and the bucket, then run again: what is published is untouched."
        )

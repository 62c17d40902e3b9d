"""Where artifacts are stored: a folder or an object store; a file exists whole or not at all."""

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from factsweep.operators.errors import InputError
from factsweep.operators.redact import redactor
from factsweep.pipeline.storage.stores import gcs, s3
from factsweep.pipeline.storage.stores.local import linked, moved, no_file, read, written
from factsweep.pipeline.storage.stores.remote import Entry, Remote

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16  # requests to an object store
_WRITERS = 2  # of a folder: one waits for the disk while the other packs
_ASIDE = "damaged"  # the folder that keeps what was set aside
_KINDS: Mapping[str, type[Remote]] = {"s3": s3.Bucket, "gs": gcs.Bucket}  # others: by Arrow


class File(NamedTuple):
    """A file of a store: its size, and when it was written, in seconds since 1970."""

    bytes: int
    written: float


@dataclass(frozen=True)
class Store:
    """Files under `root`: a path, or a URL: s3://, gs://, or another that pyarrow knows."""

    root: str

    @cached_property
    def _local(self) -> Path | None:
        scheme, _, path = self.root.rpartition("://")
        return Path(path).absolute() if scheme in ("", "file") else None

    @cached_property
    def _remote(self) -> Remote:
        return _KINDS.get(self.root.partition("://")[0], Remote)(self.root)

    def free(self) -> int | None:
        """The bytes that are free on the disk of a folder, which may still be to be made."""
        there = self._there
        return None if there is None else shutil.disk_usage(there).free

    def free_files(self) -> int | None:
        """How many more files that disk can hold; 0 where it does not count them."""
        there = self._there
        return None if there is None else os.statvfs(there).f_favail

    @property
    def _there(self) -> Path | None:
        """A folder, or the first above it that is there already; null of a URL."""
        if self._local is None:
            return None
        return next(each for each in (self._local, *self._local.parents) if each.is_dir())

    def __reduce__(self) -> tuple[type["Store"], tuple[str]]:
        return Store, (self.root,)  # connections stay in the process that opened them

    def put(self, name: str, content: bytes) -> None:
        """Publish a file: written aside, flushed, then renamed; on an object store one put."""
        if self._local is None:
            with _asked(self.where(name), "written"):
                self._remote.put(name, content)
            return
        target = self._local / name
        if target.is_dir():
            raise no_file(target, "a folder", name)
        with written(target, content) as aside:
            aside.replace(target)

    def put_new(self, name: str, content: bytes) -> bool:
        """Publish a file unless there is one of that name; whether the file now is `content`.

        Of several at once exactly one succeeds: locally by a link, in a bucket by a conditional
        put. On another object store two in the same instant may both.
        """
        if self._local is not None:
            created = linked(self._local / name, content)
        else:
            with _asked(self.where(name), "written"):
                created = self._remote.create(name, content)
        # One that was sent twice, since the answer was lost, is there the second time.
        return created or self._is(name, content)

    def _is(self, name: str, content: bytes) -> bool:
        try:
            return self.get(name) == content
        except (OSError, InputError):
            return False  # it is gone again, or no file

    def get(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: there is none of that name.
            DamagedFileError: what is there is no file, or a link out of the store.
            InputError: it cannot be read.
        """
        return self._read(name)

    def end(self, name: str, n_bytes: int) -> bytes:
        """The last bytes of a file, or all of it if it has no more."""
        return self._read(name, n_bytes)

    def _read(self, name: str, last_bytes: int | None = None) -> bytes:
        try:
            if self._local is not None:
                return read(self._local, name, last_bytes)
            return self._remote.get(name, last_bytes)
        except FileNotFoundError as error:
            raise FileNotFoundError(self.where(name)) from error
        except OSError as error:
            raise _unreadable(self.where(name), error) from error

    def each(self, ask: Callable[[T], R], items: Collection[T]) -> list[R]:
        """What a function that asks the store says of each item; of an object store many at once.

        There an answer takes long, however little is asked.
        """
        if self._local is not None or len(items) < 2:
            return list(map(ask, items))
        with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
            return list(pool.map(ask, items))

    def at_once(self, *asks: Callable[[], Any]) -> list[Any]:
        """What functions that ask the store say, in their order; an object store hears all at once.

        A folder is asked one after the other.
        """
        return self.each(lambda ask: ask(), asks)

    @property
    def writers(self) -> int:
        """How many threads publish much in the shortest time: an object store answers late."""
        return _WRITERS if self._local is not None else _AT_ONCE

    def exists(self, name: str) -> bool:
        """Whether a file is published."""
        if self._local is not None:
            return (self._local / name).is_file()
        with _asked(self.where(name), "read"):
            return self._remote.exists(name)

    def names(self, folder: str) -> list[str]:
        """What lies right under a folder and is named like a file, sorted; none if it is not there.

        It may be no file: `get` says so.
        """
        if self._local is not None:
            path = self._local / folder
            found = path.iterdir() if path.is_dir() else iter(())
            return sorted(p.name for p in found if p.name[0] != "." and (p.suffix or p.is_file()))
        return [_last(e) for e in self._entries(folder) if e.bytes is not None]

    def folders(self, folder: str) -> list[str]:
        """The folders right under a folder but `damaged`, sorted; none if it is not there."""
        if self._local is not None:
            path = self._local / folder
            found = [p.name for p in path.iterdir() if p.is_dir()] if path.is_dir() else []
        else:
            found = [_last(e) for e in self._entries(folder) if e.bytes is None]
        return sorted(name for name in found if name != _ASIDE)

    def sizes(self, folder: str) -> dict[str, int]:
        """The size of each file below a folder, in bytes, by its path in it; not of `damaged`."""
        found = self.files(folder)
        return {name: f.bytes for name, f in found.items() if _ASIDE not in name.split("/")}

    def files(self, folder: str) -> dict[str, File]:
        """Each file below a folder, by its path in it; those in `damaged` too."""
        if self._local is not None:
            top = self._local / folder
            found = {}
            for path in top.rglob("*"):
                with suppress(FileNotFoundError):  # its writer has cleared it away meanwhile
                    if not stat.S_ISDIR((each := path.lstat()).st_mode):
                        found[str(path.relative_to(top))] = File(each.st_size, each.st_mtime)
            return found
        start = f"{folder}/" if folder else ""
        entries = self._entries(folder, recursive=True)
        return {
            e.path.removeprefix(start): File(e.bytes, e.written)
            for e in entries
            if e.bytes is not None
        }

    def _entries(self, folder: str, *, recursive: bool = False) -> list[Entry]:
        with _asked(self.where(folder), "read"):
            return self._remote.entries(folder, recursive=recursive)

    def drop(self, name: str) -> None:
        """Remove a file that is no longer needed, if it exists."""
        if self._local is not None:
            try:
                (self._local / name).unlink(missing_ok=True)
            except IsADirectoryError as error:
                raise no_file(self._local / name, "a folder", name) from error
        else:
            with _asked(self.where(name), "removed"):
                self._remote.drop(name)

    @property
    def creates_once(self) -> bool:
        """Whether of several that create the same file in the same instant only one succeeds."""
        return self._local is not None or self._remote.creates_once

    @property
    def drops_at_once(self) -> bool:
        """Whether many files are removed by one request."""
        return self._local is None and self._remote.drops_at_once

    def drop_all(self, names: Collection[str]) -> None:
        """Remove files that are no longer needed, those that exist, where `drops_at_once`."""
        with _asked(self.where(next(iter(names))), "removed"):
            self._remote.drop(*names)

    def drop_empty(self, folder: str) -> None:
        """Remove the folders below one, and itself, that hold nothing; a URL has none."""
        if self._local is None:
            return
        top = self._local / folder
        for path in sorted((top, *top.rglob("*")), reverse=True):
            if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()

    def set_aside(self, name: str) -> str:
        """Move a file or folder to `damaged/` beside it, where nothing is replaced.

        Returns its new name. What is not there, or was moved by another process, is left.
        """
        folder, _, last = name.rpartition("/")
        for number in count():
            aside = f"{folder}/{_ASIDE}/{last}{f'.{number}' if number else ''}".lstrip("/")
            if self._local is None:
                if self._moved(name, aside):
                    return aside
            elif moved(self._local / name, self._local / aside):
                return aside
        raise AssertionError("there is always another number")

    def _moved(self, name: str, aside: str) -> bool:
        """Whether it could be moved: false if there is one of the new name."""
        with _asked(self.where(name), "moved"):
            if self.exists(aside) or self.sizes(aside):
                return False
            below = [""] if self.exists(name) else [f"/{each}" for each in self.sizes(name)]
            for each in below:
                self._remote.move(f"{name}{each}", f"{aside}{each}")
        return True

    def where(self, name: str = "") -> str:
        """The path or URL of a file, for messages; without credentials."""
        root = redactor()(self.root.partition("?")[0])
        return f"{root.rstrip('/')}/{name}".rstrip("/")


def _last(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


@contextmanager
def _asked(where: str, what: str) -> Iterator[None]:
    """Say in one sentence that an object store refuses, or did not answer for a minute or two."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{where} cannot be {what} ({error.strerror or error}); check the bucket, the network "
            "and the credentials in the environment; what is published is untouched."
        ) from error


def _unreadable(where: str, error: OSError) -> InputError:
    return InputError(
        f"{where} cannot be read ({error.strerror or error}); check that it is there, the network, "
        "and the credentials in the environment."
    )

"""A store behind a URL, by any file system of Arrow's; what fails raises an OSError."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, parse_qs

from factsweep.operators.errors import InputError
from factsweep.operators.redact import redactor

if TYPE_CHECKING:
    from pyarrow import fs


class Entry(NamedTuple):
    """What lies below a folder: its path in the store, its size, and when it was written."""

    path: str
    bytes: int | None  # null of a folder
    written: float  # in seconds since 1970; 0 where nobody knows


class File(NamedTuple):
    """A file of a store: its size, and when it was written, in seconds since 1970."""

    bytes: int
    written: float


def query(url: SplitResult, known: Sequence[str]) -> dict[str, str]:
    """The options that follow a URL.

    Raises:
        InputError: one is none of those that are known.
    """
    found = {name: each[-1] for name, each in parse_qs(url.query).items()}
    if unknown := sorted(found.keys() - set(known)):
        place = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}".rstrip("/")
        raise InputError(
            f"{place} has the option {unknown[0]}, which is none of {', '.join(known)}; "
            "leave it out."
        )
    return found


class Remote:
    """The files below a URL.

    `creates_once`: of several that create the same file in the same instant only one succeeds.
    `drops_at_once`: many files are removed by one request.

    Raises:
        InputError: it is none that Arrow knows.
    """

    is_near = creates_once = drops_at_once = False

    def __init__(self, root: str) -> None:
        self._root = root

    @cached_property
    def _opened(self) -> "tuple[fs.FileSystem, str]":
        from pyarrow import fs

        try:
            found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(self._root)
        except ValueError as error:
            hidden = redactor()
            said = f"artifacts={hidden(self._root)} is no folder or URL: {hidden(str(error))}."
            raise InputError(said) from error
        return found

    def _at(self, name: str) -> str:
        return f"{self._opened[1]}/{name}"

    def put(self, name: str, content: bytes) -> None:
        """Put a file."""
        with self._opened[0].open_output_stream(self._at(name)) as stream:
            stream.write(content)

    def create(self, name: str, content: bytes) -> bool:
        """Put a file unless there is one of that name; whether it was put."""
        if self.exists(name):
            return False
        self.put(name, content)
        return True

    def get(self, name: str, last_bytes: int | None = None) -> bytes:
        """The content of a file, or its end.

        Raises:
            FileNotFoundError: there is none of that name.
        """
        with self._opened[0].open_input_file(self._at(name)) as file:
            if last_bytes is not None:
                file.seek(max(0, file.size() - last_bytes))
            return bytes(file.read())

    def exists(self, name: str) -> bool:
        """Whether there is a file."""
        return bool(self._opened[0].get_file_info(self._at(name)).is_file)

    def entries(self, folder: str, *, recursive: bool = False) -> list[Entry]:
        """What lies right under a folder, or below it, sorted; nothing if it is not there."""
        from pyarrow import fs

        filesystem, base = self._opened
        below = fs.FileSelector(self._at(folder), allow_not_found=True, recursive=recursive)
        return sorted(
            Entry(
                info.path.removeprefix(f"{base}/"),
                info.size if info.is_file else None,
                (info.mtime_ns or 0) / 1e9,
            )
            for info in filesystem.get_file_info(below)
        )

    def names(self, folder: str) -> list[str]:
        """The files right under a folder."""
        return [_last(each) for each in self.entries(folder) if each.bytes is not None]

    def folders(self, folder: str) -> list[str]:
        """The folders right under a folder."""
        return [_last(each) for each in self.entries(folder) if each.bytes is None]

    def files(self, folder: str) -> dict[str, File]:
        """Each file below a folder, by its path in it."""
        start = f"{folder}/" if folder else ""
        return {
            each.path.removeprefix(start): File(each.bytes, each.written)
            for each in self.entries(folder, recursive=True)
            if each.bytes is not None
        }

    def move(self, name: str, new: str) -> None:
        """Give a file another name."""
        self._opened[0].move(self._at(name), self._at(new))

    def drop(self, *names: str) -> None:
        """Remove files, those that are there."""
        for name in filter(self.exists, names):
            self._opened[0].delete_file(self._at(name))

    def drop_empty(self, folder: str) -> None:
        """Nothing: there are no folders without files."""

    def moved(self, name: str, aside: str) -> bool:
        """Whether a file or folder could be moved: false if there is one of the new name."""
        if self.exists(aside) or self.files(aside):
            return False
        below = [""] if self.exists(name) else [f"/{each}" for each in self.files(name)]
        for each in below:
            self.move(f"{name}{each}", f"{aside}{each}")
        return True

    def free(self) -> int | None:
        """Nobody knows how much room there is."""
        return None

    free_files = free


def _last(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]

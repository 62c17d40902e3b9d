"""Where artifacts are stored: a folder or an object store; a file exists whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from operators.errors import InputError
from operators.redact import redactor
from pipeline.storage.s3 import Bucket


@dataclass(frozen=True)
class Store:
    """Files under `root`: a path, or a URL that pyarrow knows (s3://, gs://)."""

    root: str

    @cached_property
    def _local(self) -> Path | None:
        scheme, _, path = self.root.rpartition("://")
        return Path(path).absolute() if scheme in ("", "file") else None

    @cached_property
    def _remote(self) -> tuple[fs.FileSystem, str]:
        try:
            found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(_with_options(self.root))
        except (ValueError, OSError) as error:
            raise InputError(f"artifacts={self.root} is no folder or URL: {error}.") from error
        return found

    @cached_property
    def _bucket(self) -> Bucket | None:
        return Bucket(self.root) if self.root.startswith("s3://") else None

    def __reduce__(self) -> tuple[type["Store"], tuple[str]]:
        return Store, (self.root,)  # connections stay in the process that opened them

    def put(self, name: str, content: bytes) -> None:
        """Publish a file: written aside, flushed, then renamed; on an object store one put.

        Raises:
            InputError: the folder cannot be written or the disk is full.
        """
        if self._local is None:
            self._put_remote(name, content)
            return
        with _written(self._local / name, content) as aside:
            aside.replace(self._local / name)

    def _put_remote(self, name: str, content: bytes) -> None:
        filesystem, base = self._remote
        try:
            with filesystem.open_output_stream(f"{base}/{name}") as stream:
                stream.write(content)
        except OSError as error:
            raise InputError(
                f"{self.where(name)} cannot be written ({error}); check the bucket, the network "
                "and the credentials in the environment; what is published is untouched."
            ) from error

    def put_new(self, name: str, content: bytes) -> bool:
        """Publish a file unless there is one of that name; whether the file now is `content`.

        Of several at once exactly one succeeds: locally by a link, on S3 by a conditional put. On
        another object store (gs://) two in the same instant may both.

        Raises:
            InputError: the file cannot be written.
        """
        if self._local is not None:
            created = self._link(self._local / name, content)
        elif self._bucket is not None:
            created = self._bucket.create(name, content, self.where(name))
        else:
            created = not self.exists(name)
            if created:
                self.put(name, content)
        # One that was sent twice, since the answer was lost, is there the second time.
        return created or self._is(name, content)

    def _link(self, target: Path, content: bytes) -> bool:
        with _written(target, content) as aside:
            try:
                os.link(aside, target)
            except FileExistsError:
                return False
        return True

    def _is(self, name: str, content: bytes) -> bool:
        try:
            return self.get(name) == content
        except OSError:
            return False  # it is gone again, or no file

    def get(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: there is none of that name.
        """
        if self._local is not None:
            return (self._local / name).read_bytes()
        filesystem, base = self._remote
        with filesystem.open_input_stream(f"{base}/{name}") as stream:
            return bytes(stream.read())

    def open(self, name: str) -> pa.NativeFile:
        """A file to read parts of, as a Parquet footer is.

        Raises:
            FileNotFoundError: there is none of that name.
        """
        if self._local is not None:
            return pa.OSFile(str(self._local / name))
        filesystem, base = self._remote
        return filesystem.open_input_file(f"{base}/{name}")

    def exists(self, name: str) -> bool:
        """Whether a file is published."""
        if self._local is not None:
            return (self._local / name).is_file()
        filesystem, base = self._remote
        return bool(filesystem.get_file_info(f"{base}/{name}").type == fs.FileType.File)

    def names(self, folder: str) -> list[str]:
        """The files right under a folder, by their names in it, sorted; none if it is not there."""
        if self._local is not None:
            path = self._local / folder
            found = path.iterdir() if path.is_dir() else iter(())
            return sorted(p.name for p in found if p.is_file() and not p.name.startswith("."))
        filesystem, base = self._remote
        infos = filesystem.get_file_info(fs.FileSelector(f"{base}/{folder}", allow_not_found=True))
        return sorted(info.base_name for info in infos if info.is_file)

    def folders(self, folder: str) -> list[str]:
        """The folders right under a folder, sorted; none if it is not there."""
        if self._local is not None:
            path = self._local / folder
            return sorted(p.name for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
        filesystem, base = self._remote
        infos = filesystem.get_file_info(fs.FileSelector(f"{base}/{folder}", allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)

    def drop(self, name: str) -> None:
        """Remove a file that is no longer needed, if it exists."""
        if self._local is not None:
            (self._local / name).unlink(missing_ok=True)
        elif self.exists(name):
            filesystem, base = self._remote
            filesystem.delete_file(f"{base}/{name}")

    def set_aside(self, name: str) -> str:
        """Move a damaged file out of the way, never deleting it; returns its new name."""
        folder, _, file = name.rpartition("/")
        aside = f"{folder}/damaged/{file}"
        self.put(aside, self.get(name))
        self.drop(name)
        return aside

    def where(self, name: str = "") -> str:
        """The path or URL of a file, for messages; without credentials."""
        root = redactor()(self.root.partition("?")[0])
        return f"{root.rstrip('/')}/{name}".rstrip("/")


def _with_options(root: str) -> str:
    """The URL with what publishing by one put needs: S3 streams open when they are closed."""
    if not root.startswith("s3://"):
        return root
    return f"{root}{'&' if '?' in root else '?'}allow_delayed_open=true"


@contextmanager
def _written(target: Path, content: bytes) -> Iterator[Path]:
    """A flushed file beside `target`, to be given its name in the block.

    Raises:
        InputError: it cannot be written or named.
    """
    aside = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield aside
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name, too, outlives a power cut
        finally:
            os.close(folder)
    except OSError as error:
        raise InputError(
            f"{target} cannot be written ({error.strerror}); make room or choose another "
            "folder with artifacts=… or results=…; what is published is untouched."
        ) from error
    finally:
        with suppress(OSError):  # where it could not even be begun
            aside.unlink(missing_ok=True)

"""Files of a folder: written whole or not at all, checked to be regular files, moved aside."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.storage.object_store import File

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_FIX = "; remove it, then run again."  # in a store of artifacts as in results


class Folder:
    """The files below a folder, with the methods of `ObjectStore`."""

    is_near = True
    drops_at_once = False

    def __init__(self, top: Path) -> None:
        self._top = top

    def put(self, name: str, content: bytes) -> None:
        """Publish a file: written to a temporary file, flushed, then renamed."""
        target = self._top / name
        if target.is_dir():
            raise _not_a_file_error(target, "a folder", name)
        with _write_temporary(target, content) as temporary:
            temporary.replace(target)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A temporary file that is flushed and renamed at the end of the block."""
        target = self._top / name
        if target.is_dir():
            raise _not_a_file_error(target, "a folder", name)
        with _write_temporary(target, b"") as temporary:
            with temporary.open("w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)

    def create(self, name: str, content: bytes) -> bool:
        """Publish a file by a hard link, so that one of several writers wins; False: it exists."""
        target = self._top / name
        with _write_temporary(target, content) as temporary:
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise InputError(
                    f"{target.parent} has no hard links ({error.strerror}), by which one of "
                    "several writers wins; choose a folder of another file system, or S3, with "
                    "artifacts=…."
                ) from error
        return True

    def get(self, name: str, last_bytes: int | None = None) -> bytes:
        """The content of a file, or its end."""
        try:
            self._check_kind(name)
            with (self._top / name).open("rb") as file:
                if last_bytes is not None:
                    file.seek(max(0, os.fstat(file.fileno()).st_size - last_bytes))
                return file.read()
        except NotADirectoryError as error:
            raise FileNotFoundError(name) from error

    def _check_kind(self, name: str) -> None:
        """Refuse anything but a file, and links whose target may change."""
        top, path = self._top, self._top / name
        if not _is_inside(path.parent, top):
            parents = path.relative_to(top).parents[-2::-1]
            link = next(parent for parent in parents if not _is_inside(top / parent, top))
            problem = "is a link out of the store where a folder should be"
            raise DamagedFileError(f"{top / link} {problem}{_FIX}", str(link))
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            return
        if not stat.S_ISLNK(mode):
            raise _not_a_file_error(path, "a folder" if path.is_dir() else "something else", name)
        if not path.is_file():
            raise _not_a_file_error(path, "a link to no file", name)
        if not _is_inside(path, top):
            raise _not_a_file_error(path, "a link out of the store", name)

    def exists(self, name: str) -> bool:
        """Whether there is a file."""
        return (self._top / name).is_file()

    def names(self, folder: str) -> list[str]:
        """The entries of a folder that are named like files; `get` refuses others."""
        path = self._top / folder
        paths = path.iterdir() if path.is_dir() else iter(())
        return [p.name for p in paths if p.name[0] != "." and (p.suffix or p.is_file())]

    def folders(self, folder: str) -> list[str]:
        """The folders directly in a folder."""
        path = self._top / folder
        return [p.name for p in path.iterdir() if p.is_dir()] if path.is_dir() else []

    def files(self, folder: str) -> dict[str, File]:
        """Each file below a folder, by its path in it."""
        top, files = self._top / folder, {}
        for path in top.rglob("*"):
            with suppress(FileNotFoundError):  # its writer has just removed it
                if not stat.S_ISDIR((status := path.lstat()).st_mode):
                    files[str(path.relative_to(top))] = File(status.st_size, status.st_mtime)
        return files

    def drop(self, *names: str) -> None:
        """Remove the files that exist."""
        for name in names:
            try:
                (self._top / name).unlink(missing_ok=True)
            except IsADirectoryError as error:
                raise _not_a_file_error(self._top / name, "a folder", name) from error

    def drop_empty(self, folder: str) -> None:
        """Remove a folder and the folders below it, where they are empty."""
        top = self._top / folder
        for path in sorted((top, *top.rglob("*")), reverse=True):
            if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()

    def move(self, name: str, new_name: str) -> bool:
        """Move a file or folder; False if the new name is taken."""
        old, new = self._top / name, self._top / new_name
        if os.path.lexists(new):
            return False
        if not os.path.lexists(old):
            return True
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            if old.is_dir() and not old.is_symlink():
                old.rename(new)
            else:
                os.link(old, new, follow_symlinks=False)  # which never replaces, as a rename would
                old.unlink()
        except FileExistsError:
            return False
        return True

    def free(self) -> int | None:
        """The free bytes of the disk of the folder, which may not exist yet."""
        existing = next(path for path in (self._top, *self._top.parents) if path.is_dir())
        return shutil.disk_usage(existing).free


@contextmanager
def _write_temporary(target: Path, content: bytes) -> Iterator[Path]:
    """A flushed temporary file in the folder of `target`, to be renamed in the block."""
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
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
        with suppress(OSError):  # it may not have been created
            temporary.unlink(missing_ok=True)


def _is_inside(path: Path, top: Path) -> bool:
    """Whether a path leads to a place below a folder, with all links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(top))


def _not_a_file_error(path: Path, kind: str, name: str) -> DamagedFileError:
    return DamagedFileError(f"{path} is {kind} where a file should be{_FIX}", name)

"""Files of a folder: written whole or not at all, checked for what they are, moved aside."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.storage.json_files import REPAIR
from factsweep.pipeline.storage.object_store import File

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Folder:
    """The files below a folder, as `Remote` has those below a URL."""

    is_near = True
    drops_at_once = False

    def __init__(self, top: Path) -> None:
        self._top = top

    def put(self, name: str, content: bytes) -> None:
        """Publish a file: written aside, flushed, then renamed."""
        target = self._top / name
        if target.is_dir():
            raise _no_file(target, "a folder", name)
        with _written(target, content) as aside:
            aside.replace(target)

    def create(self, name: str, content: bytes) -> bool:
        """Publish a file by a link, which one of several can make; false: it is there."""
        target = self._top / name
        with _written(target, content) as aside:
            try:
                os.link(aside, target)
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
        """Refuse what is no file, or a link that may show another content tomorrow."""
        top, path = self._top, self._top / name
        if not _is_in(path.parent, top):
            link = next(
                each
                for each in path.relative_to(top).parents[-2::-1]
                if not _is_in(top / each, top)
            )
            what = "is a link out of the store where a folder should be"
            raise DamagedFileError(f"{top / link} {what}{REPAIR}", str(link))
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            return
        if not stat.S_ISLNK(found.st_mode):
            raise _no_file(path, "a folder" if path.is_dir() else "something else", name)
        if not path.is_file():
            raise _no_file(path, "a link to no file", name)
        if not _is_in(path, top):
            raise _no_file(path, "a link out of the store", name)

    def exists(self, name: str) -> bool:
        """Whether there is a file."""
        return (self._top / name).is_file()

    def names(self, folder: str) -> list[str]:
        """What lies right under a folder and is named like a file; `get` says if it is none."""
        path = self._top / folder
        found = path.iterdir() if path.is_dir() else iter(())
        return [p.name for p in found if p.name[0] != "." and (p.suffix or p.is_file())]

    def folders(self, folder: str) -> list[str]:
        """The folders right under a folder."""
        path = self._top / folder
        return [p.name for p in path.iterdir() if p.is_dir()] if path.is_dir() else []

    def files(self, folder: str) -> dict[str, File]:
        """Each file below a folder, by its path in it."""
        top, found = self._top / folder, {}
        for path in top.rglob("*"):
            with suppress(FileNotFoundError):  # its writer has cleared it away meanwhile
                if not stat.S_ISDIR((each := path.lstat()).st_mode):
                    found[str(path.relative_to(top))] = File(each.st_size, each.st_mtime)
        return found

    def drop(self, *names: str) -> None:
        """Remove files, those that are there."""
        for name in names:
            try:
                (self._top / name).unlink(missing_ok=True)
            except IsADirectoryError as error:
                raise _no_file(self._top / name, "a folder", name) from error

    def drop_empty(self, folder: str) -> None:
        """Remove the folders below one, and itself, that hold nothing."""
        top = self._top / folder
        for path in sorted((top, *top.rglob("*")), reverse=True):
            if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()

    def moved(self, name: str, aside: str) -> bool:
        """Whether a file or folder could be moved: false if there is one of the new name."""
        old, new = self._top / name, self._top / aside
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
        """The bytes that are free on the disk of the folder, which may still be to be made."""
        return shutil.disk_usage(self._there).free

    @property
    def _there(self) -> Path:
        """The folder, or the first above it that is there already."""
        return next(each for each in (self._top, *self._top.parents) if each.is_dir())


@contextmanager
def _written(target: Path, content: bytes) -> Iterator[Path]:
    """A flushed file beside `target`, to be given its name in the block."""
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


def _is_in(path: Path, top: Path) -> bool:
    """Whether a path leads to a place below a folder, whatever links it goes by."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(top))


def _no_file(path: Path, found: str, name: str) -> DamagedFileError:
    return DamagedFileError(f"{path} is {found} where a file should be{REPAIR}", name)

"""Files of a folder: written whole or not at all, checked for what they are, moved aside."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.storage.sealed import REPAIR

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def written(target: Path, content: bytes) -> Iterator[Path]:
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


def linked(target: Path, content: bytes) -> bool:
    """Publish a file by a link, which of several at once can be made by one; false: it is there."""
    with written(target, content) as aside:
        try:
            os.link(aside, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise InputError(
                f"{target.parent} has no hard links ({error.strerror}), by which one of several "
                "writers wins; choose a folder of another file system, or S3, with artifacts=…."
            ) from error
    return True


def read(top: Path, name: str, last_bytes: int | None = None) -> bytes:
    """The content of a file below a folder, or its end.

    Raises:
        FileNotFoundError: there is none of that name.
        DamagedFileError: what is there is no file, or a link out of the folder.
    """
    try:
        check_kind(top, name)
        with (top / name).open("rb") as file:
            if last_bytes is not None:
                file.seek(max(0, os.fstat(file.fileno()).st_size - last_bytes))
            return file.read()
    except NotADirectoryError as error:
        raise FileNotFoundError(name) from error


def check_kind(top: Path, name: str) -> None:
    """Refuse what is no file, or a link that may show another content tomorrow.

    Raises:
        FileNotFoundError: there is none of that name.
        DamagedFileError: it is no file, or lies behind a link out of the store.
    """
    path = top / name
    if not _is_in(path.parent, top):
        link = next(
            each for each in path.relative_to(top).parents[-2::-1] if not _is_in(top / each, top)
        )
        what = "is a link out of the store where a folder should be"
        raise DamagedFileError(f"{top / link} {what}{REPAIR}", str(link))
    found = path.lstat()
    if stat.S_ISREG(found.st_mode):
        return
    if not stat.S_ISLNK(found.st_mode):
        raise no_file(path, "a folder" if path.is_dir() else "something else", name)
    if not path.is_file():
        raise no_file(path, "a link to no file", name)
    if not _is_in(path, top):
        raise no_file(path, "a link out of the store", name)


def _is_in(path: Path, top: Path) -> bool:
    """Whether a path leads to a place below a folder, whatever links it goes by."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(top))


def no_file(path: Path, found: str, name: str) -> DamagedFileError:
    """The error of what is no file: `found` says what it is."""
    return DamagedFileError(f"{path} is {found} where a file should be{REPAIR}", name)


def moved(path: Path, aside: Path) -> bool:
    """Whether a file or folder could be moved: false if there is one of the new name."""
    if os.path.lexists(aside):
        return False
    if not os.path.lexists(path):
        return True
    aside.parent.mkdir(parents=True, exist_ok=True)
    try:
        if path.is_dir() and not path.is_symlink():
            path.rename(aside)
        else:
            os.link(path, aside, follow_symlinks=False)  # which never replaces, as a rename would
            path.unlink()
    except FileExistsError:
        return False
    return True

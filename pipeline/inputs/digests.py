"""The SHA-256 of files, and of sets of files: of their names, their lengths and every byte.

The digest of a large file is kept beside it, or in the user's cache where its folder is not to be
written: it is read once. What was kept counts only while the file is the same: its inode, its size,
and the times at which it was last changed and written. What a program writes through a map is dated
once, until the system has put it on the disk: so the file is flushed before it is read. A file
system in memory never dates it, and nothing of it is kept.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.machine.logs import Meter

_KEPT_FROM = 4 << 20  # bytes: what is smaller is read each time
_BLOCK = 1 << 20
_MAX_THREADS = 8
_EVERY_S = 0.25
# Two changes within a tick of a file system's clock look like one; the coarsest (FAT) ticks so.
_TICK_NS = 2_000_000_000
_SUFFIX = ".sha256"
_IN_MEMORY = ("tmpfs", "ramfs")

Count = Callable[[int], object]


class _State(NamedTuple):
    """What tells a file that is unchanged: none of it may differ."""

    size: int
    inode: int
    modified_ns: int
    changed_ns: int


def below(place: Path) -> dict[str, Path]:
    """The files below a folder by their names in it, or one; no hidden files, no cached code.

    Raises:
        InputError: a link leads nowhere, or into a circle.
    """
    if place.is_file():
        return {place.name: place}
    found: dict[str, Path] = {}
    for path in sorted(place.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_symlink() and not path.exists():
            raise InputError(
                f"{path} is a link that leads nowhere; copy the file here or remove it."
            )
        if path.is_dir() and place.resolve().is_relative_to(path.resolve()):
            raise InputError(f"{path} is a link to a folder that it lies in; remove it.")
        if path.is_dir():
            found |= {f"{path.name}/{name}": inner for name, inner in below(path).items()}
        elif path.is_file():
            found[path.name] = path
    return found


def of_files(files: Mapping[str, Path]) -> str:
    """One SHA-256 of files, by their names in the set.

    Raises:
        InputError: a file cannot be read, or changes while it is.
    """
    sizes = {name: _stat(path).size for name, path in files.items()}
    return _listed({name: (sizes[name], each) for name, each in of_each(files).items()})


def of_contents(contents: Mapping[str, bytes]) -> str:
    """The same of files that are not written yet."""
    return _listed(
        {name: (len(each), hashlib.sha256(each).hexdigest()) for name, each in contents.items()}
    )


def _listed(found: Mapping[str, tuple[int, str]]) -> str:
    """The SHA-256 of the list of names, lengths in bytes and digests, in the order of the names."""
    return _sha256(json.dumps([[name, *each] for name, each in sorted(found.items())]))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def of_each(files: Mapping[str, Path]) -> dict[str, str]:
    """The SHA-256 of each file; several are read at once, and a live line says how far it is.

    Raises:
        InputError: a file cannot be read, or changes while it is.
    """
    known = {name: _kept(path) for name, path in files.items()}
    new = {name: path for name, path in files.items() if known[name] is None}
    found = _read_all(new) if new else {}
    return {name: known[name] or found[name] for name in files}


def _read_all(files: Mapping[str, Path]) -> dict[str, str]:
    total = sum(_stat(path).size for path in files.values())
    if total < _KEPT_FROM:
        return {name: _read(path, lambda _: None) for name, path in files.items()}
    done = list[int]()  # bytes, of all threads
    threads = ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1))
    try:
        jobs = {name: threads.submit(_read, path, done.append) for name, path in files.items()}
        with Meter("checksums") as meter:
            left, failed = {*jobs.values()}, False
            while left and not failed:
                read = sum(done)
                meter.show(f"{read / 1e9:.1f} of {total / 1e9:.1f} GB ({read / total:.0%})")
                ended, left = wait(left, timeout=_EVERY_S, return_when="FIRST_EXCEPTION")
                failed = any(job.exception() for job in ended)
        return {name: job.result() for name, job in jobs.items()}
    finally:
        threads.shutdown(cancel_futures=True)


def _read(path: Path, count: Count) -> str:
    """The SHA-256 of a file, kept if it is large."""
    _stat(path)  # which says why it cannot be read
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            is_flushed = _flush(file.fileno())
            before = _stat(path)
            place = _place(path) if before.size >= _KEPT_FROM and is_flushed else None
            block = memoryview(bytearray(_BLOCK))
            while n_read := file.readinto(block):
                digest.update(block[:n_read])
                count(n_read)
    except OSError as error:
        raise _unreadable(path, error) from error
    if _stat(path) != before:
        raise InputError(f"{path} changed while it was read; run again when it is complete.")
    if place is not None:
        record, now_ns = place
        if max(before.modified_ns, before.changed_ns) + _TICK_NS <= now_ns:
            _keep(record, _written(digest.hexdigest(), before))
    return digest.hexdigest()


def _flush(file: int) -> bool:
    """Put all that was written to a file on its disk; whether each later change will be dated."""
    with suppress(OSError):  # a file system that cannot
        os.fsync(file)
        device = os.fstat(file).st_dev
        return _kinds().get(f"{os.major(device)}:{os.minor(device)}") not in _IN_MEMORY
    return False


def _kinds() -> dict[str, str]:
    """The kind of each file system that is mounted, by its device (proc_pid_mountinfo(5))."""
    lines = map(str.split, Path("/proc/self/mountinfo").read_text().splitlines())
    return {line[2]: line[line.index("-") + 1] for line in lines}


def _stat(path: Path) -> _State:
    try:
        found = path.stat()
        return _State(found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be read ({error.strerror}); copy it here again or remove it.")


def _kept(path: Path) -> str | None:
    """What was kept of a file that has not changed since; null: it is to be read."""
    state = _stat(path)
    if state.size < _KEPT_FROM:
        return None
    for record in _records(path):
        with suppress(OSError, ValueError, TypeError, KeyError):  # there is none, or it is damaged
            text = record.read_text("utf-8")
            sha256 = str(json.loads(text)["sha256"])
            if text == _written(sha256, state):
                return sha256
    return None


def _written(sha256: str, state: _State) -> str:
    """A digest as it is kept, with the state that the file was read in and a checksum."""
    content = {"sha256": sha256, "state": state._asdict()}
    return json.dumps({**content, "check": _sha256(json.dumps(content, sort_keys=True))})


def _records(path: Path) -> tuple[Path, Path]:
    """Where a file's digest may be kept: beside what its name leads to, or in the cache."""
    there = path.resolve()
    return (
        there.with_name(f".{there.name}{_SUFFIX}"),
        home() / "digests" / f"{_sha256(str(there))}{_SUFFIX}",
    )


def _place(path: Path) -> tuple[Path, int] | None:
    """The first place that can be written, and the time by the clock that dates files there."""
    for record in _records(path):
        with suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=record.parent) as file:
                return record, os.fstat(file.fileno()).st_mtime_ns
    return None


def _keep(record: Path, text: str) -> None:
    aside = record.with_name(f"{record.name}.{os.getpid()}")
    with suppress(OSError):  # a full disk, say: the file is then read again the next time
        aside.write_text(text, "utf-8")
        aside.replace(record)

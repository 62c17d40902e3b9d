"""The SHA-256 of files, and of sets of files: of their names, their lengths and every byte.

The digest of a large file is cached next to it, or in the user's cache where its folder is
read-only. It is valid while inode, size, mtime and ctime are the same. Writes through a memory map
change these only after a flush, so the file is flushed before it is read; a file system in memory
never changes them, and no digest of its files is cached.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.machine.logs import Meter

_KEPT_FROM = 4 << 20  # bytes; smaller files are read each time
_BLOCK = 1 << 20
_MAX_THREADS = 8
_EVERY_S = 0.25
# Two changes within a tick of a file system's clock look like one; the coarsest (FAT) ticks so.
_TICK_NS = 2_000_000_000
_SUFFIX = ".sha256"
_IN_MEMORY = ("tmpfs", "ramfs")

Count = Callable[[int], object]


class _State(NamedTuple):
    """The state of an unchanged file: no field may differ."""

    size: int
    inode: int
    modified_ns: int
    changed_ns: int


def list_files(place: Path) -> dict[str, Path]:
    """The files below a folder by their names in it, or one; no hidden files, no cached code.

    Raises:
        InputError: a link leads nowhere, or into a circle.
    """
    if place.is_file():
        return {place.name: place}
    files: dict[str, Path] = {}
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
            files |= {f"{path.name}/{name}": inner for name, inner in list_files(path).items()}
        elif path.is_file():
            files[path.name] = path
    return files


def digest_files(files: Mapping[str, Path]) -> str:
    """One SHA-256 of files, by their names in the set.

    Raises:
        InputError: a file cannot be read, or changes while it is.
    """
    sizes = {name: _read_state(path).size for name, path in files.items()}
    return _digest_list((name, sizes[name], digest) for name, digest in digest_each(files).items())


def digest_contents(contents: Mapping[str, bytes]) -> str:
    """The same of files that are not written yet."""
    return _digest_list((name, len(data), _sha256(data)) for name, data in contents.items())


def _digest_list(files: Iterable[tuple[str, int, str]]) -> str:
    """The SHA-256 of the list of names, lengths in bytes and digests, in the order of the names."""
    return _sha256(json.dumps(sorted(files)).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_each(files: Mapping[str, Path]) -> dict[str, str]:
    """The SHA-256 of each file; threads read several at once, with a progress line.

    Raises:
        InputError: a file cannot be read, or changes while it is.
    """
    cached = {name: _read_cached_digest(path) for name, path in files.items()}
    digests = {name: digest for name, digest in cached.items() if digest is not None}
    missing = {name: path for name, path in files.items() if name not in digests}
    n_bytes = sum(_read_state(path).size for path in missing.values())
    if n_bytes < _KEPT_FROM:
        digests |= {name: _hash(path, lambda _: None) for name, path in missing.items()}
        return {name: digests[name] for name in files}
    n_read = list[int]()  # bytes, of all threads
    threads = ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1))
    try:
        jobs = {name: threads.submit(_hash, path, n_read.append) for name, path in missing.items()}
        with Meter("checksums") as meter:
            pending, has_failed = {*jobs.values()}, False
            while pending and not has_failed:
                n = sum(n_read)
                meter.show(f"{n / 1e9:.1f} of {n_bytes / 1e9:.1f} GB ({n / n_bytes:.0%})")
                ended, pending = wait(pending, timeout=_EVERY_S, return_when="FIRST_EXCEPTION")
                has_failed = any(job.exception() for job in ended)
        digests |= {name: job.result() for name, job in jobs.items()}
    finally:
        threads.shutdown(cancel_futures=True)
    return {name: digests[name] for name in files}


def _hash(path: Path, count: Count) -> str:
    _read_state(path)  # which says why it cannot be read
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            is_flushed = _flush(file.fileno())
            state = _read_state(path)
            place = _find_writable_record(path) if state.size >= _KEPT_FROM and is_flushed else None
            block = memoryview(bytearray(_BLOCK))
            while n_read := file.readinto(block):
                digest.update(block[:n_read])
                count(n_read)
    except OSError as error:
        raise _unreadable_error(path, error) from error
    if _read_state(path) != state:
        raise InputError(f"{path} changed while it was read; run again when it is complete.")
    if place is not None:
        record, now_ns = place
        if max(state.modified_ns, state.changed_ns) + _TICK_NS <= now_ns:
            aside = record.with_name(f"{record.name}.{os.getpid()}")
            with suppress(OSError):  # a full disk, say: the file is then read again the next time
                aside.write_text(_format_record(digest.hexdigest(), state), "utf-8")
                aside.replace(record)
    return digest.hexdigest()


def _flush(file: int) -> bool:
    """Flush a file to its disk; whether each later change will change its times."""
    with suppress(OSError):  # a file system that cannot
        os.fsync(file)
        device = os.fstat(file).st_dev
        return _list_file_systems().get(f"{os.major(device)}:{os.minor(device)}") not in _IN_MEMORY
    return False


def _list_file_systems() -> dict[str, str]:
    """The kind of each file system that is mounted, by its device (proc_pid_mountinfo(5))."""
    lines = map(str.split, Path("/proc/self/mountinfo").read_text().splitlines())
    return {line[2]: line[line.index("-") + 1] for line in lines}


def _read_state(path: Path) -> _State:
    try:
        stat = path.stat()
        return _State(stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)
    except OSError as error:
        raise _unreadable_error(path, error) from error


def _unreadable_error(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be read ({error.strerror}); copy it here again or remove it.")


def _read_cached_digest(path: Path) -> str | None:
    state = _read_state(path)
    if state.size < _KEPT_FROM:
        return None
    for record in _record_paths(path):
        with suppress(OSError, ValueError, TypeError, KeyError):  # there is none, or it is damaged
            text = record.read_text("utf-8")
            sha256 = str(json.loads(text)["sha256"])
            if text == _format_record(sha256, state):
                return sha256
    return None


def _format_record(sha256: str, state: _State) -> str:
    """The record of a digest, with the state of the file and a checksum of the record."""
    content = {"sha256": sha256, "state": state._asdict()}
    check = _sha256(json.dumps(content, sort_keys=True).encode())
    return json.dumps({**content, "check": check})


def _record_paths(path: Path) -> tuple[Path, Path]:
    """The places of a file's cached digest: next to the file that a link leads to, or at home."""
    target = path.resolve()
    key = _sha256(str(target).encode())
    return target.with_name(f".{target.name}{_SUFFIX}"), home() / "digests" / f"{key}{_SUFFIX}"


def _find_writable_record(path: Path) -> tuple[Path, int] | None:
    """The first place that can be written, and the time by the clock that dates files there."""
    for record in _record_paths(path):
        with suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=record.parent) as file:
                return record, os.fstat(file.fileno()).st_mtime_ns
    return None

"""Standard output and error: a character that the terminal cannot show is replaced by `?`."""

import io
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn, TextIO

_STDOUT = 1


class OutputError(OSError):
    """The standard output takes no more: its reader has left (EPIPE), or its disk is full."""


class _Raw(io.FileIO):
    """A standard stream. After a failed write, it leads to /dev/null."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == _STDOUT:
                raise OutputError(error.errno, error.strerror, "standard output") from error
            return memoryview(data).nbytes  # lost progress and warnings do not end a run


def prepare_streams() -> None:
    """Make standard output and error replace characters, and outlive their readers.

    A stream that was closed before the start leads to /dev/null.
    """
    sys.stdout, sys.stderr = map(_prepared, (sys.stdout, sys.stderr))


def _prepared(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    try:
        buffer = io.BufferedWriter(_Raw(stream.fileno(), "w", closefd=False))
    except io.UnsupportedOperation:  # no stream of the system: Python code has replaced it
        return stream
    is_live = stream.isatty() or stream is sys.stderr
    return io.TextIOWrapper(buffer, stream.encoding, "replace", line_buffering=is_live)


def end(code: int) -> NoReturn:
    """End this process at once with `code`, after what it has printed is written.

    Ray, gRPC, Arrow and Polars leave threads of C++ and Rust running that nobody can end. Where the
    interpreter is torn down around them, such a thread sometimes calls what is gone, and a process
    whose work is done and published dies of a segmentation fault. Call it last: nothing that is
    registered with `atexit` runs any more.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)

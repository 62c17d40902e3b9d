"""Standard output and error: characters that the terminal cannot show are replaced by `?`."""

import io
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn, TextIO

from factsweep.operators.wording import escape_invisible

_STDOUT = 1


class OutputError(OSError):
    """The standard output cannot be written: its reader has left (EPIPE), or its disk is full."""


class _RedirectingStream(io.FileIO):
    """A standard stream, redirected to /dev/null after a failed write."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == _STDOUT:
                raise OutputError(error.errno, error.strerror, "standard output") from error
            return memoryview(data).nbytes  # lost progress and warnings do not end a run


class _Escaped(io.TextIOWrapper):
    """The standard output: texts of files send no commands to the terminal.

    Live lines need some on the standard error, so each message there is escaped by itself.
    """

    def write(self, text: str, /) -> int:
        return super().write(escape_invisible(text))


def prepare_streams() -> None:
    """Make standard output and error replace characters, and survive the end of their readers.

    A stream that was closed before the start is redirected to /dev/null.
    """
    sys.stdout, sys.stderr = map(_prepare_stream, (sys.stdout, sys.stderr))


def _prepare_stream(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    try:
        buffer = io.BufferedWriter(_RedirectingStream(stream.fileno(), "w", closefd=False))
    except io.UnsupportedOperation:  # Python code has replaced the stream
        return stream
    is_live = stream.isatty() or stream is sys.stderr
    kind = io.TextIOWrapper if stream is sys.stderr else _Escaped
    return kind(buffer, stream.encoding, "replace", line_buffering=is_live)


def end(code: int) -> NoReturn:
    """Flush the standard streams and end this process at once with `code`, without `atexit`.

    Ray, gRPC, Arrow and Polars leave threads of C++ and Rust running. While the interpreter is torn
    down, they sometimes call freed objects, and a process whose work is done dies of a segmentation
    fault.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)

"""The end of a process, with the exit code that its work deserves."""

import os
import sys
from contextlib import suppress
from typing import NoReturn


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

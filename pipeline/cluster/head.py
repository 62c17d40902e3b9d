"""Ray's head: a driver whose head is gone ends itself, with a sentence.

A call to a head that is gone blocks, and after a minute Ray's C++ ends the whole process without a
word in the run's log. So a thread of the driver's own asks the head's port for a connection, and
ends the process sooner.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from factsweep.operators.errors import DecodingError, reason
from factsweep.pipeline.machine.streams import end

_EVERY_S = 2.0
_SILENT_S = 30.0  # a head that is started anew, or a network that is out for a moment, comes back


@contextmanager
def watched(address: str, gone: Callable[[DecodingError], None]) -> Iterator[None]:
    """End the process with code 1 if `address` is silent for 30 s; `gone` is called before."""
    over = threading.Event()
    threading.Thread(target=_watch, args=(address, gone, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(address: str, gone: Callable[[DecodingError], None], over: threading.Event) -> None:
    heard = time.monotonic()
    while not over.wait(_EVERY_S):
        silence = _silence(address)
        if silence is None:
            heard = time.monotonic()
        elif time.monotonic() - heard > _SILENT_S and not over.is_set():
            try:
                gone(_error(address, silence))
            finally:
                end(DecodingError.exit_code)


def _silence(address: str) -> str | None:
    """Why there is no connection to a port; null if there is one."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_EVERY_S).close()
    except OSError as error:
        return reason(error)
    return None


def _error(address: str, silence: str) -> DecodingError:
    return DecodingError(
        f"Ray's head at {address} has not answered for {_SILENT_S:g} seconds ({silence}): it was "
        "killed, or its machine is gone; what is published is kept, and the next run resumes."
    )

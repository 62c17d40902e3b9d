"""A watchdog: ends this process when an engine at work gives no answer for too long.

An engine that hangs can be ended in no other way; whoever is free then does its shard. The timer
is a thread of the interpreter's own, so it fires even where an engine hangs inside C code.
"""

import faulthandler
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Watchdog:
    """Waits for a beat while it is on guard, in however many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: list[float] = []  # of the blocks that it guards

    @contextmanager
    def on_guard(self, limit_s: float) -> Iterator[None]:
        """End the process with code 1 if, during the block, `limit_s` pass without a beat.

        A beat is one of all blocks. Where each thread stands is then written to the standard error.
        """
        with self._lock:
            self._limits.append(limit_s)
        self.beat()
        try:
            yield
        finally:
            with self._lock:
                self._limits.remove(limit_s)
                faulthandler.cancel_dump_traceback_later()
            self.beat()

    def beat(self) -> None:
        """Say that there was progress."""
        with self._lock:
            if self._limits:
                faulthandler.dump_traceback_later(max(self._limits), exit=True)

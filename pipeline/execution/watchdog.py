"""A watchdog: ends this process when an engine at work gives no answer for too long.

An engine that hangs can be ended in no other way; whoever is free then does its shard. The timer
is a thread of the interpreter's own, so it fires even where an engine hangs inside C code.
"""

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager


class Watchdog:
    """Waits for a beat while it is on guard."""

    def __init__(self) -> None:
        self._limit_s: float | None = None

    @contextmanager
    def on_guard(self, limit_s: float) -> Iterator[None]:
        """End the process with code 1 if, during the block, `limit_s` pass without a beat.

        Where each thread stands is then written to the standard error.
        """
        self._limit_s = limit_s
        self.beat()
        try:
            yield
        finally:
            self._limit_s = None
            faulthandler.cancel_dump_traceback_later()

    def beat(self) -> None:
        """Say that there was progress."""
        if self._limit_s is not None:
            faulthandler.dump_traceback_later(self._limit_s, exit=True)

"""A watchdog: ends this process when an engine that is at work gives no answer for too long.

An engine that hangs can be ended in no other way; its shard is then done by whoever is free.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_CODE = 75


class Watchdog:
    """Waits `limit_s` for a beat while it is on guard."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._last: float | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def on_guard(self) -> Iterator[None]:
        """Watch during the block."""
        self.beat()
        try:
            yield
        finally:
            self._last = None

    def beat(self) -> None:
        """Say that there was progress."""
        self._last = time.monotonic()

    def _watch(self) -> None:
        while True:
            time.sleep(min(1.0, self._limit_s / 4))
            last = self._last
            if last is not None and time.monotonic() - last > self._limit_s:
                sys.stderr.write(
                    f"factsweep: no answer for {self._limit_s} s; ending this engine\n"
                )
                sys.stderr.flush()
                os._exit(EXIT_CODE)

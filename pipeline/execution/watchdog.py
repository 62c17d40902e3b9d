"""A watchdog: ends this process when an engine that is at work gives no answer for too long.

An engine that hangs can be ended in no other way; its shard is then done by whoever is free.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_CODE = 75
_LOOK_EVERY_S = 0.5


class Watchdog:
    """Waits for a beat while it is on guard."""

    def __init__(self) -> None:
        self._limit_s = math.inf
        self._last = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def on_guard(self, limit_s: float) -> Iterator[None]:
        """Watch during the block: end the process `limit_s` after the last beat."""
        self.beat()
        self._limit_s = limit_s
        try:
            yield
        finally:
            self._limit_s = math.inf

    def beat(self) -> None:
        """Say that there was progress."""
        self._last = time.monotonic()

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            limit_s = self._limit_s
            if time.monotonic() - self._last > limit_s:
                sys.stderr.write(
                    f"factsweep: no sign of life for {limit_s} s; ending this engine\n"
                )
                sys.stderr.flush()
                os._exit(EXIT_CODE)

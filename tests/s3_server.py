"""A real S3 protocol server on this machine: moto's, in a process of its own.

vLLM, which other tests load, cannot stand moto's imports beside it.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_S = 60


@contextmanager
def serving(log: Path) -> Iterator[str]:
    """The URL of a server that notes its requests in `log`."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with log.open("wb") as output, subprocess.Popen(command, stderr=output, stdout=output) as moto:
        try:
            end = time.monotonic() + _START_S
            while not (found := re.search(r"Running on (http://\S+)", log.read_text())):
                assert moto.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            yield found[1]
        finally:
            moto.terminate()

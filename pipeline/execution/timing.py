"""What making an artifact without an engine took: <artifact>/cost.json."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.machine import processor
from pipeline.storage.artifact import Artifact


@contextmanager
def timed(artifact: Artifact) -> Iterator[None]:
    """Note in the artifact what making it in this process took."""
    began, busy = time.monotonic(), time.process_time()
    yield
    content = {
        "hardware": processor.cpu(),
        "seconds": time.monotonic() - began,
        "core_seconds": time.process_time() - busy,
    }
    artifact.put("cost.json", json.dumps(content).encode())

"""What making an artifact without an engine took: <artifact>/cost.json."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from factsweep.pipeline.machine import processor
from factsweep.pipeline.stages.stage import Sharing
from factsweep.pipeline.storage.artifact import Artifact

_NAME = "cost.json"


@contextmanager
def timed(artifact: Artifact, sharing: Sharing) -> Iterator[None]:
    """Note in the artifact what making it took, in this process and where it was shared out."""
    began, busy = time.monotonic(), time.process_time()
    yield
    content = {
        "hardware": processor.cpu(),
        "seconds": time.monotonic() - began,
        "core_seconds": time.process_time() - busy + sharing.core_seconds,
    }
    artifact.put_note(_NAME, content)


def read(artifact: Artifact) -> dict[str, Any]:
    """What making an artifact took: hardware, seconds, core_seconds.

    Raises:
        FileNotFoundError: it was not noted.
        DamagedFileError: the note is not what was written.
    """
    return artifact.note(_NAME)

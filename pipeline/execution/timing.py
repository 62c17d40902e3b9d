"""What making an artifact without an engine took: <artifact>/cost.json."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from factsweep.pipeline.machine import processor
from factsweep.pipeline.stages.stage import Sharing
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.sealed import seal, unseal


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
    artifact.put("cost.json", seal(content, _name(artifact)))


def read(artifact: Artifact) -> dict[str, Any]:
    """What making an artifact took: hardware, seconds, core_seconds.

    Raises:
        FileNotFoundError: it was not noted.
        DamagedFileError: the note is not what was written.
    """
    name = _name(artifact)
    return unseal(artifact.store.get(name), name, artifact.store.where(name))


def _name(artifact: Artifact) -> str:
    return f"{artifact.folder}/cost.json"

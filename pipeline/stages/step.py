"""A step of a plan: an artifact, what it is made of and how, and what making it took."""

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from factsweep.operators.errors import InputError
from factsweep.pipeline.machine import processor
from factsweep.pipeline.stages.question import Question
from factsweep.pipeline.stages.stage import Alone, Shared, Sharing, Stage
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import SOURCES, cut_otherwise, set_all_aside, set_aside
from factsweep.pipeline.storage.json_files import Stored, digest
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.recipe import differences

_COST = "cost.json"


@dataclass(frozen=True)
class Step:
    """An artifact, the steps that it waits for, and how it is made."""

    artifact: Artifact
    after: tuple["Step", ...]
    stage: Stage | None  # computes and publishes it; null: engines answer `question` instead
    question: Question | None = None

    def run(self, lease: Lease | None = None, sharing: Sharing | None = None) -> None:
        """Make the artifact, unless it is complete, and note what it took.

        `sharing` is how its parts are shared out, if it has any; null: this process makes all.

        Raises:
            InputError: this machine would make it of something else than was planned.
        """
        assert self.stage is not None, "engines are asked"
        if self.artifact.is_complete():
            return
        artifact, sharing = self.opened(lease), sharing or Alone()
        with timed(artifact, sharing):
            if isinstance(self.stage, Shared):
                self.stage.make_shared(artifact, sharing)
            else:
                self.stage.make(artifact)

    def opened(self, lease: Lease | None = None) -> Artifact:
        """The artifact as its holder publishes it, without shards that were made of other inputs.

        Raises:
            InputError: this machine would make it of something else than was planned.
        """
        self.check()
        artifact = replace(self.artifact, lease=lease)
        check_inputs(artifact, [each.artifact for each in self.after])
        return artifact

    def check(self) -> None:
        """Refuse to make the artifact of something else than was planned."""
        assert self.stage is not None, "engines are asked"
        check_planned(self.stage.recipe.fields, self.artifact)


def check_planned(here: Mapping[str, Any], artifact: Artifact) -> None:
    """Refuse to make an artifact of other fields than it is named after: those that are `here`."""
    planned = {name: artifact.recipe.fields.get(name) for name in here}
    for line in differences(planned, here):
        raise InputError(
            f"{socket.gethostname()} differs from the machine that planned "
            f"{artifact.store.where(artifact.folder)} ({line}); install the same versions on every "
            "machine, then run again."
        )


def check_inputs(artifact: Artifact, inputs: Sequence[Artifact], *, is_asked: bool = False) -> None:
    """Set aside the shards of an open artifact that were made of other inputs than are there.

    Raises:
        InputError: an engine was asked for them, so that they are kept.
    """
    sources = digest([each.manifest().state for each in inputs])
    if artifact.settled(SOURCES, sources) != sources:
        if is_asked and artifact.all_published():
            raise InputError(cut_otherwise(artifact, inputs[0].folder))
        set_all_aside(artifact)
        set_aside(artifact, f"{artifact.folder}/{SOURCES}.json")
        artifact.settled(SOURCES, sources)


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
    artifact.put_note(_COST, content)


def took(artifact: Artifact) -> dict[str, Any]:
    """What making an artifact without an engine took: hardware, seconds, core_seconds.

    Raises:
        FileNotFoundError: it was not noted.
        DamagedFileError: the note is not what was written.
    """
    types = {"hardware": str, "seconds": int | float, "core_seconds": int | float}
    found = artifact.note(_COST, *types)
    for name, type_ in types.items():
        if not isinstance(found[name], type_):
            file = f"{artifact.folder}/{_COST}"
            where = artifact.store.where(file)
            raise Stored(where, file).damaged(f"says {name} {found[name]!r}")
    return found

"""A stage: how an artifact is made. A step of a plan: an artifact with its inputs and its stage."""

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from factsweep.operators.errors import InputError
from factsweep.pipeline.machine import processor
from factsweep.pipeline.stages.question import Question
from factsweep.pipeline.storage.artifact import Artifact, Recipe, differences
from factsweep.pipeline.storage.integrity import (
    SOURCES,
    other_shards_message,
    quarantine,
    quarantine_all,
)
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.store import StoredFile, digest

_COST = "cost.json"


class Stage(Protocol):
    """A frozen dataclass of a stage's inputs: configuration, and artifacts that it waits for.

    It travels to a worker, so it holds no open file and no engine.
    """

    @property
    def recipe(self) -> Recipe:
        """Everything that determines the content; its fingerprint is the artifact's name."""

    def make(self, artifact: Artifact) -> None:
        """Compute the content and publish it."""


class Sharing(Protocol):
    """How parts of an artifact are distributed over processes."""

    @property
    def core_seconds(self) -> float:
        """The CPU seconds of other processes."""

    def __call__(self, work: Callable[[Sequence[str]], None], parts: Mapping[str, int]) -> None:
        """Have `work` make and publish all parts (by their number of prompts) in some processes."""


class SingleProcess:
    """This process makes all parts."""

    core_seconds = 0.0

    def __call__(self, work: Callable[[Sequence[str]], None], parts: Mapping[str, int]) -> None:
        """Make all parts in turn."""
        if parts:
            work(list(parts))


class ShardedStage(ABC):
    """A stage whose artifact has independent parts."""

    def make(self, artifact: Artifact) -> None:
        """Compute all parts in this process, and publish them."""
        self.make_shared(artifact, SingleProcess())

    @abstractmethod
    def make_shared(self, artifact: Artifact, sharing: Sharing) -> None:
        """Compute the unpublished parts, distributed by `sharing`, and publish all."""


@dataclass(frozen=True)
class Step:
    """An artifact, the steps that it waits for, and how it is made."""

    artifact: Artifact
    after: tuple["Step", ...]
    stage: Stage | None  # computes and publishes it; null: engines answer `question` instead
    question: Question | None = None

    def run(self, lease: Lease | None = None, sharing: Sharing | None = None) -> None:
        """Make the artifact, unless it is complete, and note its cost.

        `sharing` distributes its parts, if it has any; null: this process makes all. Shards that
        were made of other inputs are quarantined.

        Raises:
            InputError: this machine would make it from other inputs than planned.
        """
        assert self.stage is not None, "engines are asked"
        if self.artifact.is_complete():
            return
        self.check()
        artifact, sharing = replace(self.artifact, lease=lease), sharing or SingleProcess()
        check_inputs(artifact, [step.artifact for step in self.after])
        with note_time(artifact, sharing):
            if isinstance(self.stage, ShardedStage):
                self.stage.make_shared(artifact, sharing)
            else:
                self.stage.make(artifact)

    def check(self) -> None:
        """Refuse to make the artifact from other inputs than planned."""
        assert self.stage is not None, "engines are asked"
        check_planned(self.stage.recipe.fields, self.artifact)


def check_planned(fields: Mapping[str, Any], artifact: Artifact) -> None:
    """Refuse to make an artifact if this machine's recipe fields differ from the planned ones."""
    planned = {name: artifact.recipe.fields.get(name) for name in fields}
    for line in differences(planned, fields):
        raise InputError(
            f"{socket.gethostname()} differs from the machine that planned "
            f"{artifact.store.where(artifact.folder)} ({line}); install the same versions on every "
            "machine, then run again."
        )


def check_inputs(artifact: Artifact, inputs: Sequence[Artifact], *, is_asked: bool = False) -> None:
    """Quarantine the shards of an open artifact that were made of earlier inputs.

    Raises:
        InputError: an engine was asked for them, so that they are kept.
    """
    sources = digest([each_input.manifest().state for each_input in inputs])
    if artifact.settle(SOURCES, sources) != sources:
        if is_asked and artifact.all_published():
            raise InputError(other_shards_message(artifact, inputs[0].folder))
        quarantine_all(artifact)
        quarantine(artifact, f"{artifact.folder}/{SOURCES}.json")
        artifact.settle(SOURCES, sources)


@contextmanager
def note_time(artifact: Artifact, sharing: Sharing) -> Iterator[None]:
    """Note in the artifact the time of making it, in this process and the others."""
    start, core_start = time.monotonic(), time.process_time()
    yield
    content = {
        "hardware": processor.cpu(),
        "seconds": time.monotonic() - start,
        "core_seconds": time.process_time() - core_start + sharing.core_seconds,
    }
    artifact.put_note(_COST, content)


def read_cost(artifact: Artifact) -> dict[str, Any]:
    """The cost of making an artifact without an engine: hardware, seconds, core_seconds.

    Raises:
        FileNotFoundError: it was not noted.
        DamagedFileError: the note was changed or cut off.
    """
    types = {"hardware": str, "seconds": int | float, "core_seconds": int | float}
    cost = artifact.note(_COST, *types)
    for name, type_ in types.items():
        if not isinstance(cost[name], type_):
            file = f"{artifact.folder}/{_COST}"
            place = artifact.store.where(file)
            raise StoredFile(place, file).damaged_file_error(f"says {name} {cost[name]!r}")
    return cost

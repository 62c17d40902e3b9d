"""A stage: how an artifact is made, and everything that determines its content."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe


class Stage(Protocol):
    """A frozen dataclass of what the stage reads: configuration, and artifacts that it waits for.

    It travels to a worker, so it holds no open file and no engine.
    """

    @property
    def recipe(self) -> Recipe:
        """Everything that determines the content; its fingerprint is the artifact's name."""

    def make(self, artifact: Artifact) -> None:
        """Compute the content and publish it."""


class Sharing(Protocol):
    """How parts of an artifact are shared out to processes."""

    @property
    def core_seconds(self) -> float:
        """The CPU seconds of other processes."""

    def __call__(self, work: Callable[[Sequence[str]], None], parts: Mapping[str, int]) -> None:
        """Have `work` make and publish all parts, each of so many prompts, some in each process."""


class Alone:
    """All parts are made in this process."""

    core_seconds = 0.0

    def __call__(self, work: Callable[[Sequence[str]], None], parts: Mapping[str, int]) -> None:
        """Make all parts, one after the other."""
        if parts:
            work(list(parts))


class Shared(ABC):
    """A stage whose artifact has parts that are made without one another."""

    def make(self, artifact: Artifact) -> None:
        """Compute all parts in this process, and publish them."""
        self.make_shared(artifact, Alone())

    @abstractmethod
    def make_shared(self, artifact: Artifact, sharing: Sharing) -> None:
        """Compute the parts that are not published yet, as they are shared out, and publish all."""

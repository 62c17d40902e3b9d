"""A stage: how an artifact is made, and everything that determines its content."""

from typing import Protocol

from pipeline.storage.artifact import Artifact
from pipeline.storage.recipe import Recipe


class Stage(Protocol):
    """A frozen dataclass of what the stage reads: configuration, and artifacts that it waits for.

    It travels to a worker, so it holds no open file and no engine.
    """

    @property
    def recipe(self) -> Recipe:
        """Everything that determines the content; its fingerprint is the artifact's name."""
        ...

    def make(self, artifact: Artifact) -> None:
        """Compute the content and publish it."""
        ...

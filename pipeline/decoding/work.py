"""A shard to decode: what an engine is handed, and what it holds."""

from dataclasses import dataclass

from factsweep.pipeline.cluster.hardware import Hardware
from factsweep.pipeline.stages.question import Question
from factsweep.pipeline.storage.artifact import Artifact


@dataclass(frozen=True)
class Work:
    """A shard to decode: what an engine is handed, in place of the rows themselves."""

    artifact: Artifact
    prompts: Artifact
    admitted: Artifact
    shard: str
    model: str
    question: Question
    rows_per_chunk: int
    seconds_per_chunk: float
    max_deaths: int
    max_failed_share: float
    hardware: Hardware

    @property
    def table(self) -> str:
        """The table that is written."""
        return self.artifact.stage

    @property
    def source(self) -> str:
        """The table of prompts that the shard is one of."""
        return self.question.source

    @property
    def open_name(self) -> str:
        """Where what belongs to the open shard lies."""
        return f"{self.table}/{self.shard}"

    @property
    def chunks(self) -> str:
        """The table that the shard's finished chunks lie in, while it is open."""
        return f"chunks/{self.open_name}"

    @property
    def name(self) -> str:
        """What messages and counts call the shard."""
        return f"{self.artifact.folder}/{self.open_name}"

    def n_answers(self, n_prompts: int) -> int:
        """How many answers so many prompts get."""
        return n_prompts * self.question.task.answers_per_prompt

    @property
    def thoughts(self) -> str:
        """The table that what was thought before the answers lies in meanwhile."""
        return f"chunks/thoughts/{self.shard}"

    @property
    def refusals(self) -> str:
        """The table that those prompts lie in meanwhile that were refused an answer."""
        return f"chunks/errors/{self.shard}"

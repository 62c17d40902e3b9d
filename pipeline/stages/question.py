"""A question: which prompts an engine is asked, with what text, and whether they fit its context.

Deciding what to decode, planning it, measuring its rate and checking it all ask here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import polars as pl

from factsweep.operators.prompts.expansion import Source
from factsweep.operators.prompts.tokens import encode, warnings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.storage.artifact import Artifact

Row = Mapping[str, Any]
_CLOSING = 16  # tokens, at most, that close a thought


class Answered(NamedTuple):
    """A row of the table that is written, and what it counts for."""

    row: dict[str, Any]
    counts: Mapping[str, float]
    error: Mapping[str, str] | None = None  # prompt_id, reason, detail: no answer, an empty row
    thought: Row | None = None  # a row of the table `thoughts`

    @classmethod
    def single(
        cls, prompt_id: str, said: Row, *, read: int, cached: int = 0, written: int = 0
    ) -> "Answered":
        """One answer to a prompt: what is said to it, and its tokens."""
        tokens = {"prompt_tokens": read, "cached_tokens": cached, "output_tokens": written}
        return cls({"prompt_id": prompt_id, **said}, {"prompts": 1, "answers": 1, **tokens})


class Task(Protocol):
    """How an engine is asked about each prompt."""

    @property
    def answers_per_prompt(self) -> int:
        """How many answers a prompt gets."""

    @property
    def shares_answers(self) -> bool:
        """Whether prompts of the same text get the same answer, so that one of them is asked."""

    def token_ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """The prompts as the model reads them."""

    def warnings(self, tokenizer: Any, text: str) -> list[str]:
        """A sentence for each part of a prompt that the model may read in another sense."""

    def answered(
        self, groups: Iterable[pl.DataFrame], engine: Any, tokenizer: Any
    ) -> Iterator[Answered]:
        """An answer for each row (a prompt with its text), in whatever order they are finished.

        A group is taken when the last rows of the one before it are about to be handed out.
        """


def check_reading(task: Task, tokenizer: Any, prompts: pl.DataFrame) -> None:
    """Refuse prompts that the model would not read as their text: each template's first is tried.

    Raises:
        InputError: it names the tokenizer or the chat template, what it did, and the fix.
    """
    for text in prompts.unique("template_id", keep="first", maintain_order=True)["text"]:
        task.token_ids(tokenizer, [text])


class Whole:
    """A task whose texts are read as they are, each by itself, and get one answer."""

    answers_per_prompt = 1
    shares_answers = False

    def token_ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """The texts as the model reads them."""
        return encode(tokenizer, texts)

    def warnings(self, tokenizer: Any, text: str) -> list[str]:
        """A sentence for each part of a text that the model may read in another sense."""
        return warnings(tokenizer, text)

    def answered(
        self, groups: Iterable[pl.DataFrame], engine: Any, tokenizer: Any
    ) -> Iterator[Answered]:
        """An answer for each row, one group after the other."""
        for rows in groups:
            yield from self.answered_of(rows, engine, tokenizer)

    def answered_of(self, rows: pl.DataFrame, engine: Any, tokenizer: Any) -> Iterator[Answered]:
        """An answer for each row of a group, in the order in which they are made."""
        raise NotImplementedError


@dataclass(frozen=True)
class Question:
    """What an engine is asked, and the table that its answers are written to."""

    table: str
    task: Task
    source: Source = "prompts"  # the table of prompts
    n_ranked: int | None = None  # of the ranked prompts; null: every prompt of the source
    # What the recipe of the answers holds beside the model, the engine and the prompts.
    fields: Mapping[str, Any] = field(default_factory=dict)
    # The prompts of a budget (table `needed`): their shards stay open for the others; null: all.
    part: Artifact | None = None

    @property
    def further(self) -> list[str]:
        """The tables that are written beside that of the answers."""
        return ["thoughts"] if getattr(self.task, "keeps_thoughts", False) else []

    def shards(self, prompts: Artifact) -> list[str]:
        """The shards of the source that an engine is asked any prompt of."""
        shards = prompts.shards(self.source)
        if self.part is None:
            return shards
        n_needed = self.part.rows("needed")
        return [shard for shard in shards if n_needed[shard]]

    def asked_of(self, shard: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Those of a shard's rows that an engine is asked."""
        rows = self.asked(rows)
        if self.part is None:
            return rows
        needed = self.part.read("needed", shard)
        return rows.join(needed, on="prompt_id", how="semi", maintain_order="left")

    def asked(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Those of the source's rows that an engine is asked.

        Prompts whose text stands earlier are left out if they share its answer: it is joined back
        when answers are matched. Of a budget's all are taken.
        """
        if self.task.shares_answers:
            rows = rows.filter(pl.col("same_as").is_null())
        if self.n_ranked is not None:
            rows = rows.filter(pl.col("calibration_rank") < self.n_ranked)
        return rows


class Questions(NamedTuple):
    """All that an engine is asked in a setting; `again`: some prompts once more, for the noise."""

    answers: Question
    again: Question | None
    further: tuple[Question, ...]


def room(run: Run) -> int:
    """The most tokens a prompt may have, so that an answer fits behind it."""
    thought = run.decoding.thinking_tokens + _CLOSING if run.model.thinking else 0
    return run.model.max_model_len - run.decoding.max_tokens - thought

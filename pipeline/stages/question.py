"""A question to an engine: its prompts, their texts and room; and the recipe of its answers."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.methods.method import Ability
from factsweep.operators.prompts.expansion import Source
from factsweep.operators.prompts.tokens import encode, warnings
from factsweep.pipeline.config.recipe import in_recipe
from factsweep.pipeline.config.run import Decoding, Run
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine.software import versions
from factsweep.pipeline.storage.artifact import Artifact, Recipe

Row = Mapping[str, Any]
_CLOSING = 16  # tokens, at most, that close a thought
# 2: the recipes of all abilities hold the same fields of model and engine.
# 3: every byte of the weights counts, and the tokenizers' version.
VERSION = 3
# Fields of a model that say how it is loaded.
LOADED = (
    *("dtype", "gguf_file", "tensor_parallel", "pipeline_parallel", "trust_remote_code"),
    *("tokenizer", "content"),  # they count tokens, and are part of the recipe of `admitted`
)


class AnswerRow(NamedTuple):
    """A row of the answers' table, and its counts."""

    row: dict[str, Any]
    counts: Mapping[str, float]
    error: Mapping[str, str] | None = None  # prompt_id, reason, detail: no answer, an empty row
    thought: Row | None = None  # a row of the table `thoughts`

    @classmethod
    def single(
        cls, prompt_id: str, answer: Row, *, read: int, cached: int = 0, written: int = 0
    ) -> "AnswerRow":
        """One answer to a prompt, and its tokens."""
        tokens = {"prompt_tokens": read, "cached_tokens": cached, "output_tokens": written}
        return cls({"prompt_id": prompt_id, **answer}, {"prompts": 1, "answers": 1, **tokens})


class Further(NamedTuple):
    """The further requests of a task for each prompt, and the most tokens of all of them."""

    requests: int = 0
    prompt_tokens: int = 0  # those of the prompt itself do not count
    output_tokens: int = 0


class Task:
    """How an engine is asked about each prompt: by default each text verbatim, for one answer."""

    @property
    def further(self) -> Further:
        """The further requests for each prompt."""
        return Further()

    @property
    def answers_per_prompt(self) -> int:
        """The number of answers to a prompt."""
        return 1

    @property
    def shares_answers(self) -> bool:
        """Whether prompts of the same text share one answer."""
        return False

    def token_ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """The prompts as the model reads them."""
        return encode(tokenizer, texts)

    def warnings(self, tokenizer: Any, text: str) -> list[str]:
        """A sentence for each part of a prompt that the model may misread."""
        return warnings(tokenizer, text)

    def answer_groups(
        self, groups: Iterable[pl.DataFrame], engine: Any, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        """An answer for each row (a prompt with its text), in order of completion.

        A group is taken just before the last rows of the previous one.
        """
        for rows in groups:
            yield from self.answer_rows(rows, engine, tokenizer)

    def answer_rows(self, rows: pl.DataFrame, engine: Any, tokenizer: Any) -> Iterator[AnswerRow]:
        """An answer for each row of a group, in order of completion."""
        raise NotImplementedError


def check_reading(task: Task, tokenizer: Any, prompts: pl.DataFrame) -> list[int]:
    """Refuse prompts that the model would misread; returns the tokens of each template's first.

    Raises:
        InputError: the tokenizer or the chat template changes the text.
    """
    firsts = prompts.unique("template_id", keep="first", maintain_order=True)["text"]
    return [len(ids) for text in firsts for ids in task.token_ids(tokenizer, [text])]


@dataclass(frozen=True)
class Question:
    """A question to an engine, and the table of its answers."""

    table: str
    task: Task
    source: Source = "prompts"  # the table of prompts
    n_ranked: int | None = None  # of the ranked prompts; null: every prompt of the source
    # Further fields of the answers' recipe (than the model, the engine and the prompts).
    fields: Mapping[str, Any] = field(default_factory=dict)
    # The prompts of a budget (table `needed`): their shards stay open for the others; null: all.
    part: Artifact | None = None

    @property
    def extra_tables(self) -> list[str]:
        """The tables that are written in addition to the answers."""
        return ["thoughts"] if getattr(self.task, "keeps_thoughts", False) else []

    def shards(self, prompts: Artifact) -> list[str]:
        """The shards of the source with prompts of this question."""
        shards = prompts.shards(self.source)
        if self.part is None:
            return shards
        n_needed = self.part.rows("needed")
        return [shard for shard in shards if n_needed[shard]]

    def select_asked_rows(self, shard: str, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of a shard that an engine is asked."""
        rows = self.select_rows(rows)
        if self.part is None:
            return rows
        needed = self.part.read("needed", shard)
        return rows.join(needed, on="prompt_id", how="semi", maintain_order="left")

    def select_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of the source that an engine is asked without a budget.

        Repeated texts are left out if they share an answer, which is joined back by `match`.
        """
        if self.task.shares_answers:
            rows = rows.filter(pl.col("same_as").is_null())
        if self.n_ranked is not None:
            rows = rows.filter(pl.col("calibration_rank") < self.n_ranked)
        return rows


class Questions(NamedTuple):
    """The questions of a setting; `repeated_question` repeats some prompts, for the noise floor."""

    answers: Question
    repeated_question: Question | None
    extra_questions: tuple[Question, ...]


@dataclass(frozen=True)
class Answer:
    """The answers of an engine to a question about a setting's prompts."""

    question: Question
    admitted: Artifact
    weights: Weights
    decoding: Decoding
    ability: Ability

    @property
    def recipe(self) -> Recipe:
        """The prompts, the model, the engine, and the question."""
        model = {**in_recipe(self.weights.model), **self.weights.fields}
        if self.weights.model.source == "endpoint":  # only the server knows how it loads the model
            model = {name: value for name, value in model.items() if name not in LOADED}
        elif self.decoding.mix_tensor_parallel:
            model["tensor_parallel"] = "any"
        # Environment variables that may change an answer, if any are set.
        switches = self.decoding.engine_for(self.ability.name).switches(os.environ)
        fields = {
            "model": model,
            "software": software(self.ability, self.decoding),
            "determinism": self.decoding.determinism,
            **({"environment": switches} if switches else {}),
            **self.question.fields,
        }
        inputs = {"admitted": self.admitted.fingerprint}
        return Recipe(self.question.table, VERSION, fields, inputs)


def software(ability: Ability, decoding: Decoding) -> dict[str, str]:
    """The engine and the libraries that it computes with, each with its version on this machine."""
    engine = decoding.engine_for(ability.name)
    if engine.gpus == "none":  # nothing is computed here
        return {"engine": engine.version()}
    return {"engine": engine.version(), **versions("torch", "transformers", "tokenizers")}


def room(run: Run) -> int:
    """The most tokens of a prompt that leave room for an answer."""
    thought = run.decoding.thinking_tokens + _CLOSING if run.model.thinking else 0
    return run.model.max_model_len - run.decoding.max_tokens - thought

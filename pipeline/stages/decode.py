"""decode: prompts × a model → answers, one shard at a time, whatever is asked of the engine.

An open shard keeps its finished answers as chunks; when the last prompt is answered, the chunks
become the shard. What is published is done, and is never decoded again: whether it is, an engine
asks before it begins and before it publishes.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import polars as pl

from operators.errors import DecodingError, InputError, StoppedError
from operators.schemas import empty
from pipeline.machine import processor
from pipeline.stages import trial
from pipeline.stages.expand import relation_of, with_text
from pipeline.stages.question import Question
from pipeline.storage.artifact import Artifact
from pipeline.storage.shard import Counts, Footer, numbers

_REPORT_EVERY_S = 0.5
_MAX_CONDEMNED = 3  # a shard's: more of them than this, or than may fail, have another cause

# Told what was done since the last time; says whether to stop.
Report = Callable[[dict[str, float]], bool]


@dataclass(frozen=True)
class Hardware:
    """What one engine holds; `gpus` and `cores` are those that its seconds are paid for.

    `named` stands in the counts in place of what the engine finds itself on.
    """

    gpus: int
    cores: int
    tensor_parallel: int
    named: str | None = None
    per_gpu: int = 1

    @property
    def name(self) -> str:
        """What its seconds were measured on; asked where the engine is."""
        return self.named or processor.name(self.gpus)


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


def todo(work: Work) -> pl.DataFrame:
    """The prompts of the shard that an engine is asked and that fit, with text, in prefix order."""
    rows = with_text(work.prompts, work.source, work.shard)
    refused = pl.concat(
        [
            work.admitted.read("errors", shard)
            for shard in work.admitted.shards("errors")
            if work.shard in (shard, relation_of(shard))
        ]
    )
    return work.question.asked(
        rows.join(refused, on="prompt_id", how="anti", maintain_order="left")
    )


def other_prompt(work: Work, suspects: Sequence[str]) -> pl.DataFrame:
    """One prompt of the shard that is none of the suspects; empty if it has no other."""
    rows = todo(work)
    others = rows.filter(~pl.col("prompt_id").is_in(suspects))
    n = others.height if rows.height > 1 else 0
    return others.slice((n - 1) // max(1, len(suspects)), 1) if n else others.head(0)


def n_left(work: Work) -> int:
    """How many answers the shard still lacks, from footers alone where it has many prompts."""
    if is_published(work):
        return 0
    if work.source != "prompts":
        n = todo(work).height
    else:
        refused = work.admitted.rows("errors").get(work.shard, 0)
        n = int(work.prompts.counts("prompts")[work.shard]["distinct"]) - refused
    chunks = work.artifact.published(work.chunks)
    # Two engines that were cut off from each other may have answered the same prompts.
    return max(0, n - sum(_chunk(work, each).rows for each in chunks))


def _chunk(work: Work, name: str) -> Footer:
    return work.artifact.footer(work.table, name, work.chunks)


def is_published(work: Work) -> bool:
    """Whether the shard is published, by whomever."""
    return work.artifact.has(work.table, work.shard)


def decode(work: Work, engine: Any, tokenizer: Any, report: Report) -> None:
    """Answer the prompts of a shard that have no answer yet, and publish it.

    Raises:
        StoppedError: the report said so; what is finished is published.
        DecodingError: engines die of more prompts than can be by chance.
        InputError: the model answers what is no number.
        ArtifactHeldError: another driver has taken the artifact over.
    """
    rows = todo(work)
    if not is_published(work):
        try:
            _answer(work, rows, engine, tokenizer, report)
        except FileNotFoundError:
            if not is_published(work):  # else another engine has, and clears its chunks away
                raise
    report({"shards": 1, "errors": _settle(work, rows)})


def _answer(work: Work, rows: pl.DataFrame, engine: Any, tokenizer: Any, report: Report) -> None:
    tally = _Tally(report, work.hardware)
    shard = _OpenShard(work, rows, tally)
    while not (left := shard.left()).is_empty():
        shard.narrow(left)
        group = shard.attempt(left)
        for row, counts in work.question.task.answered(group, engine, tokenizer):
            if not _has_numbers(row):
                shard.pause()
                raise InputError(
                    f"{work.model} says of prompt {row['prompt_id']} what is no number (NaN), so "
                    "its type overflows or its weights are damaged; check them, or give another "
                    "model.dtype, such as float32."
                )
            asked_to_stop = tally.count(counts)
            shard.keep(row)
            if asked_to_stop:
                shard.pause()
                raise StoppedError("stopped; the next run resumes from what is published.")
        shard.survived()
    tally.flush()
    shard.publish()


def _has_numbers(value: Any) -> bool:
    """Whether all numbers of an answer are some."""
    if isinstance(value, dict):
        return all(map(_has_numbers, value.values()))
    if isinstance(value, list):
        return all(map(_has_numbers, value))
    return not (isinstance(value, float) and math.isnan(value))


def _settle(work: Work, rows: pl.DataFrame) -> int:
    """Publish what a published shard lacks as error rows, and clear away what it was made of.

    Returns how many rows it lacks. The trial goes last: a shard that has one is not settled.
    """
    asked = rows.select("prompt_id")
    answers = work.artifact.read(work.table, work.shard)
    errors = _errors(work, asked.join(answers, on="prompt_id", how="anti", maintain_order="left"))
    if not errors.is_empty():
        work.artifact.write("errors", work.shard, errors)
    for chunk in work.artifact.shards(work.chunks):
        work.artifact.drop(f"{work.chunks}/{chunk}.parquet")
    trial.drop(work.artifact, work.open_name)
    return errors.height


def _errors(work: Work, condemned: pl.DataFrame) -> pl.DataFrame:
    return condemned.select(
        "prompt_id",
        stage=pl.lit("decode"),
        reason=pl.lit("engine_died"),
        detail=pl.lit(f"{work.max_deaths} engines died while they answered it alone"),
    )


class _OpenShard:
    """A shard while it is decoded: its answers so far, its chunks and its trial."""

    def __init__(self, work: Work, rows: pl.DataFrame, tally: "_Tally") -> None:
        self._work = work
        self._rows = rows
        self._tally = tally
        chunks = work.artifact.published(work.chunks)
        published = [work.artifact.read_chunk(work.table, work.chunks, c) for c in chunks]
        self._spent = [_chunk(work, chunk).counts for chunk in chunks]
        # Two engines that were cut off from each other may have answered the same prompts.
        self._kept = pl.concat([empty(work.table), *published]).unique("prompt_id", keep="first")
        self._buffer: list[dict[str, Any]] = []
        self._trial = trial.read(work.artifact, work.open_name)

    def left(self) -> pl.DataFrame:
        """The prompts that have no answer and are not condemned."""
        rows = self._rows.join(self._answers(), on="prompt_id", how="anti", maintain_order="left")
        return rows.filter(~pl.col("prompt_id").is_in(self._trial.condemned))

    def _answers(self) -> pl.DataFrame:
        return pl.concat([self._kept, _frame(self._work, self._buffer)])

    def narrow(self, left: pl.DataFrame) -> None:
        """Suspect fewer prompts, if the current ones have seen too many engines die."""
        self._trial = self._trial.narrowed(left["prompt_id"].to_list(), self._work.max_deaths)
        condemned = len(self._trial.condemned)
        if condemned > max(_MAX_CONDEMNED, self._work.max_failed_share * self._rows.height):
            raise DecodingError(
                f"shard {self._work.shard}: engines die of {condemned} of its "
                f"{self._rows.height} prompts."
            )

    def attempt(self, left: pl.DataFrame) -> pl.DataFrame:
        """Note that an attempt begins; returns the prompts to answer in it."""
        ids = self._trial.current(left["prompt_id"].to_list())
        self._trial = self._trial.attempted()
        trial.write(self._work.artifact, self._work.open_name, self._trial)
        return left.filter(pl.col("prompt_id").is_in(ids))

    def survived(self) -> None:
        """The attempt is over, and the engine lives."""
        self._trial = self._trial.survived()

    def keep(self, row: dict[str, Any]) -> None:
        """Keep an answer; a full buffer is published as a chunk."""
        self._buffer.append(row)
        if len(self._buffer) == self._work.rows_per_chunk:
            self.flush()

    def flush(self) -> None:
        """Publish what is finished as a chunk, under a name that no other engine uses."""
        if self._buffer:
            frame = _frame(self._work, self._buffer)
            counts = self._take()
            self._work.artifact.write_chunk(
                self._work.table, self._work.chunks, uuid4().hex, frame, counts
            )
            self._spent.append(counts)
            self._kept, self._buffer = pl.concat([self._kept, frame]), []

    def pause(self) -> None:
        """Leave the shard open for another run; this attempt killed nobody."""
        self.flush()
        spared = replace(self._trial, begun=self._trial.begun - 1)
        trial.write(self._work.artifact, self._work.open_name, spared)

    def publish(self) -> None:
        """Publish the shard in the order of its prompts, unless another engine has.

        Its counts are those of its chunks, whichever run decoded them.
        """
        work = self._work
        answered = self._rows.select("prompt_id").join(
            self._answers(), on="prompt_id", maintain_order="left"
        )
        work.artifact.write(work.table, work.shard, answered, self._counts())

    def _take(self) -> Counts:
        """What was done since the last time, and on what."""
        return {**self._tally.take(), "hardware": self._work.hardware.name}

    def _counts(self) -> Counts:
        spent = [*self._spent, *([self._take()] if self._buffer or not self._spent else [])]
        sums = Counter[str]()
        for each in spent:
            sums.update(numbers(each))
        names = sorted({str(each.get("hardware")) for each in spent})
        return {**sums, "model": self._work.model, "hardware": " + ".join(names)}


def _frame(work: Work, rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=empty(work.table).schema)


class _Tally:
    """Counts what is answered: reported now and then, and kept with the chunk."""

    def __init__(self, report: Report, hardware: Hardware) -> None:
        self._report = report
        self._hardware = hardware
        self._pending, self._taken = Counter[str](), Counter[str]()
        self._reported, self._taken_at = -math.inf, time.monotonic()  # the first is told at once

    def count(self, counts: Mapping[str, float]) -> bool:
        """Count an answer; whether the report asks to stop."""
        self._pending.update(counts)
        self._taken.update(counts)
        return time.monotonic() - self._reported > _REPORT_EVERY_S and self.flush()

    def flush(self) -> bool:
        """Report what was counted since the last time; whether the report asks to stop."""
        pending, self._pending = self._pending, Counter()
        self._reported = time.monotonic()
        return self._report(dict(pending))

    def take(self) -> dict[str, float]:
        """What was counted since the last taking, and what it cost."""
        now = time.monotonic()
        seconds, self._taken_at = now - self._taken_at, now
        taken, self._taken = self._taken, Counter()
        return {
            **taken,
            "seconds": seconds,
            "gpu_seconds": seconds * self._hardware.gpus / self._hardware.per_gpu,
            "core_seconds": seconds * self._hardware.cores,
            f"prompts at tensor_parallel={self._hardware.tensor_parallel}": taken["prompts"],
        }

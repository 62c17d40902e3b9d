"""decode: prompts × a model → answers, one shard at a time, whatever is asked of the engine.

An open shard keeps its finished answers as chunks; when the last prompt is answered, the chunks
become the shard. That needs no engine, and so may be done beside the answering of the next shard:
all answers are kept by then, so that who dies meanwhile loses none. What is published is done, and
is never decoded again: whether it is, an engine asks before it begins and before it publishes.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import polars as pl

from factsweep.operators.errors import DecodingError, FactsweepError, InputError, StoppedError
from factsweep.operators.prices import Purse
from factsweep.operators.schemas import empty
from factsweep.pipeline.stages.asking import trial
from factsweep.pipeline.stages.asking.feed import Feed
from factsweep.pipeline.stages.asking.idle import Clocked
from factsweep.pipeline.stages.asking.question import Answered
from factsweep.pipeline.stages.asking.remaining import (
    is_published,
    of_budget,
    one_per_prompt,
    refused,
)
from factsweep.pipeline.stages.asking.work import Work
from factsweep.pipeline.storage.shard import Counts, numbers

_REPORT_EVERY_S = 0.5
_MAX_CONDEMNED = 3  # a shard's: more of them than this, or than may fail, have another cause

BROKE = "the next request might exceed max_cost"
# Told what was done since the last time; says whether to stop.
Report = Callable[[dict[str, float]], bool]


def answer(
    work: Work,
    rows: pl.DataFrame,
    engine: Clocked,
    tokenizer: Any,
    report: Report,
    purse: Purse | None = None,
) -> Callable[[], None]:
    """Answer the prompts of a shard that have no answer yet; returns what publishes the shard.

    The rows are those of the whole shard (`remaining.todo`). What a server charges is paid from the
    purse, if there is one.

    Raises:
        InputError: a server answers nothing, or a model what is no number; what is finished is
            kept, as in all cases.
        StoppedError: the report said so, or the purse is empty.
        DecodingError: engines die of more prompts than can be by chance.
        ArtifactHeldError: another driver has taken the artifact over.
    """
    shard = None
    if not is_published(work):
        try:
            tally, feed = _Tally(report, work, engine), Feed(engine, work, purse)
            shard = _answered(work, rows, feed, tokenizer, tally)
        except FileNotFoundError:
            if not is_published(work):  # else another engine has, and clears its chunks away
                raise
    return partial(_publish, work, rows, shard, report)


def _answered(
    work: Work, rows: pl.DataFrame, feed: Feed, tokenizer: Any, tally: "_Tally"
) -> "_OpenShard":
    """Answer what is left of the shard, or of a budget in it; all of that is kept then."""
    shard = _OpenShard(work, rows, tally, feed.chunk(work.rows_per_chunk))
    while not (left := of_budget(work, shard.left())).is_empty():
        shard.narrow(left)
        group = shard.attempt(left)
        try:
            for each in work.question.task.answered(group, feed.engine, tokenizer):
                _check_numbers(work, each.row)
                if tally.count(each.counts):
                    feed.closed = True
                shard.keep(each)
                if not feed.drains:
                    break
        except FactsweepError:
            shard.pause()
            raise
        if feed.closed:
            shard.pause()
            raise StoppedError("stopped; the next run resumes from what is published.")
        if feed.is_broke():
            shard.pause()
            raise StoppedError(BROKE)
        shard.survived()
    tally.flush()
    shard.leave()
    return shard


def _publish(work: Work, rows: pl.DataFrame, shard: "_OpenShard | None", report: Report) -> None:
    """Publish a shard that is all answered, or settle another's; one asked in part stays open."""
    if shard is not None:
        if not shard.left().is_empty():
            report({"shards": 1})
            return
        shard.publish()
    report({"shards": 1, "errors": _settle(work, rows)})


def _check_numbers(work: Work, row: Mapping[str, Any]) -> None:
    if not _has_numbers(row):
        raise InputError(
            f"{work.model} says of prompt {row['prompt_id']} what is no number (NaN), so "
            "its type overflows or its weights are damaged; check them, or give another "
            "model.dtype, such as float32."
        )


def _has_numbers(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, dict):  # Mapping would take three times as long to ask
        return all(map(_has_numbers, value.values()))
    return not isinstance(value, list) or all(map(_has_numbers, value))


def _settle(work: Work, rows: pl.DataFrame) -> int:
    """Publish what a published shard lacks as error rows, and clear away what it was made of.

    Returns how many rows it lacks. The trial goes last: a shard that has one is not settled.
    """
    asked = rows.select("prompt_id")
    answers = work.artifact.read(work.table, work.shard)
    unanswered = asked.join(answers, on="prompt_id", how="anti", maintain_order="left")
    if not unanswered.is_empty():
        work.artifact.write("errors", work.shard, _errors(work, unanswered))
    folders = (work.chunks, work.refusals, work.thoughts)
    chunks = work.artifact.store.each(work.artifact.published, folders)
    found = zip(folders, chunks, strict=True)
    names = [f"{folder}/{chunk}.parquet" for folder, each in found for chunk in each]
    work.artifact.drop_all(names)
    trial.drop(work.artifact, work.open_name)
    return unanswered.height


def _errors(work: Work, unanswered: pl.DataFrame) -> pl.DataFrame:
    """Why each has no answer: it was refused one, or engines died of it."""
    stage, reason = pl.lit("decode"), pl.lit("engine_died")
    detail = pl.lit(f"{work.max_deaths} engines died while they answered it alone")
    died = unanswered.select("prompt_id", stage=stage, reason=reason, detail=detail)
    return died.update(refused(work), on="prompt_id", how="left")


class _OpenShard:
    """A shard while it is decoded: its answers so far, its chunks and its trial."""

    def __init__(
        self, work: Work, rows: pl.DataFrame, tally: "_Tally", rows_per_chunk: int
    ) -> None:
        self._work = work
        self._rows_per_chunk = rows_per_chunk
        self._rows = rows
        self._tally = tally
        # The engine waits meanwhile: an object store is asked all of it at once.
        store = work.artifact.store
        chunks, self._refused, self._trial = store.at_once(
            partial(work.artifact.published, work.chunks),
            partial(refused, work),
            partial(trial.read, work.artifact, work.open_name),
        )
        read = partial(work.artifact.read_chunk, work.table, work.chunks)
        published = store.each(read, chunks)
        self._spent = [counts for _, counts in published]
        self._kept = one_per_prompt(work.table, published)
        self._buffer: list[dict[str, Any]] = []
        self._refusals: list[dict[str, Any]] = []
        self._thoughts: list[Mapping[str, Any]] = []
        self._flushed = time.monotonic()

    def left(self) -> pl.DataFrame:
        """The prompts that have no answer, were not refused one, and are not condemned."""
        refused = pl.concat([self._refused, _frame("errors", self._refusals)])
        kept = pl.concat([self._kept, _frame(self._work.table, self._buffer)])
        rows = self._rows.join(kept, on="prompt_id", how="anti", maintain_order="left")
        rows = rows.join(refused, on="prompt_id", how="anti", maintain_order="left")
        return rows.filter(~pl.col("prompt_id").is_in(self._trial.condemned))

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
        self._trial = replace(self._trial, begun=self._trial.begun + 1)
        trial.write(self._work.artifact, self._work.open_name, self._trial)
        return left.filter(pl.col("prompt_id").is_in(ids))

    def survived(self) -> None:
        self._trial = self._trial.survived()

    def keep(self, answered: Answered) -> None:
        """Keep an answer, or why there is none; a full or old buffer is published as a chunk."""
        if answered.error is None:
            self._buffer.append(answered.row)
        else:
            self._refusals.append({**answered.error, "stage": "decode"})
        if answered.thought is not None:
            self._thoughts.append(answered.thought)
        is_old = time.monotonic() - self._flushed >= self._work.seconds_per_chunk
        if is_old or len(self._buffer) + len(self._refusals) >= self._rows_per_chunk:
            self.flush()

    def flush(self) -> None:
        """Publish what is finished as a chunk, under a name that no other engine uses.

        What was refused goes first: the counts, which are the answers' chunk's, cover both. So do
        thoughts: no answer is there without its own.
        """
        if self._thoughts:
            thoughts, self._thoughts = _frame("thoughts", self._thoughts), []
            self._work.artifact.write_chunk("thoughts", self._work.thoughts, uuid4().hex, thoughts)
        if self._refusals:
            frame = _frame("errors", self._refusals)
            self._work.artifact.write_chunk("errors", self._work.refusals, uuid4().hex, frame)
            self._refused = pl.concat([self._refused, frame])
        if self._buffer or self._refusals:
            self._refusals = []
            frame = _frame(self._work.table, self._buffer)
            counts = self._take()
            where = self._work.table, self._work.chunks, f"{frame.height}-{uuid4().hex}"
            self._work.artifact.write_chunk(*where, frame, counts)
            self._spent.append(counts)
            self._kept, self._buffer = pl.concat([self._kept, frame]), []
        self._flushed = time.monotonic()

    def pause(self) -> None:
        """Leave the shard open for another run; this attempt killed nobody."""
        self.flush()
        spared = replace(self._trial, begun=self._trial.begun - 1)
        trial.write(self._work.artifact, self._work.open_name, spared)

    def leave(self) -> None:
        """Keep all answers: the engine has done its part, and what it dies of now is another's.

        Both at once, as when the shard is opened: until it is handed the next, the engine waits.
        """
        spared = partial(trial.write, self._work.artifact, self._work.open_name, self._trial)
        self._work.artifact.store.at_once(self.flush, spared)
        if not self._spent:
            self._spent.append(self._take())

    def publish(self) -> None:
        """Publish the shard in the order of its prompts, unless another engine has.

        Its counts are those of its chunks, whichever run decoded them.
        """
        work = self._work
        asked = self._rows.select("prompt_id")
        answered = asked.join(self._kept, on="prompt_id", maintain_order="left")
        if work.question.further:
            ids, found = answered.select("prompt_id"), self._all_thoughts()
            thoughts = ids.join(found, on="prompt_id", how="left", maintain_order="left")
            work.artifact.write("thoughts", work.shard, thoughts)
        work.artifact.write(work.table, work.shard, answered, self._counts())

    def _all_thoughts(self) -> pl.DataFrame:
        """What was thought before all answers so far, by whichever engine."""
        artifact, folder = self._work.artifact, self._work.thoughts
        read = partial(artifact.read_chunk, "thoughts", folder)
        try:
            found = artifact.store.each(read, artifact.published(folder))
        except FileNotFoundError:
            if not is_published(self._work):
                raise
            found = []  # another engine has published them, and cleared them away
        return one_per_prompt("thoughts", found)

    def _take(self) -> Counts:
        return {**self._tally.take(), "hardware": self._work.hardware.name}

    def _counts(self) -> Counts:
        sums = Counter[str]()
        for each in self._spent:
            sums.update(numbers(each))
        names = sorted({str(each.get("hardware")) for each in self._spent})
        return {**sums, "model": self._work.model, "hardware": " + ".join(names)}


def _frame(table: str, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=empty(table).schema)


class _Tally:
    """Counts what is answered: reported now and then, and kept with the chunk."""

    def __init__(self, report: Report, work: Work, engine: Clocked) -> None:
        self._report = report
        self._hardware = work.hardware
        self._engine = engine
        again = {"answers_given_twice": work.again} if work.again else {}
        self._pending, self._taken = Counter[str](), Counter[str](again)
        self._counted = Counter[str]()  # one for both: this is done for every answer
        self._reported = -math.inf  # the first is told at once

    def count(self, counts: Mapping[str, float]) -> bool:
        """Count an answer; whether the report asks to stop."""
        self._counted.update(counts)
        return time.monotonic() - self._reported > _REPORT_EVERY_S and self.flush()

    def _note(self) -> None:
        """Note what was counted, as what is to be reported and to be taken."""
        counted, self._counted = self._counted, Counter()
        self._pending.update(counted)
        self._taken.update(counted)

    def flush(self) -> bool:
        """Report what was counted since the last time; whether the report asks to stop."""
        self._note()
        pending, self._pending = self._pending, Counter()
        self._reported = time.monotonic()
        return self._report(dict(pending))

    def take(self) -> dict[str, float]:
        """What was counted since the last taking, and what it cost."""
        seconds, idle_seconds = self._engine.used()
        self._note()
        taken, self._taken = self._taken, Counter()
        held, prices = self._hardware, self._hardware.prices
        tokens = taken["prompt_tokens"], taken["output_tokens"]
        return {
            **taken,
            **({} if prices is None else {"cost": prices.of(*tokens)}),
            "seconds": seconds,
            "idle_seconds": idle_seconds,
            "gpu_seconds": seconds * held.gpus / held.per_gpu,
            "core_seconds": seconds * held.cores,
            f"prompts at tensor_parallel={held.tensor_parallel}": taken["prompts"],
        }

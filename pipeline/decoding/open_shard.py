"""An open shard: what is asked of it, its answers so far, its chunks and its trial.

Its finished answers are kept as chunks; when the last prompt is answered, the chunks become the
shard. What is published is done, and is never asked again.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import polars as pl

from factsweep.operators.errors import DamagedFileError, DecodingError
from factsweep.operators.schemas import empty
from factsweep.pipeline.decoding import remaining
from factsweep.pipeline.decoding.engine import Clocked
from factsweep.pipeline.decoding.remaining import Work
from factsweep.pipeline.stages.question import Answered
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.shard import Counts, numbers

_REPORT_EVERY_S = 0.5
_PAID_CHUNK = 32  # answers that are paid for are kept sooner: a killed run would pay for them again
_GROUP = 16  # prompts that a shard is divided into when it has killed engines
_MAX_CONDEMNED = 3  # a shard's: more of them than this, or than may fail, have another cause

# Told what was done since the last time; says whether to stop.
Report = Callable[[dict[str, float]], bool]


class OpenShard:
    """A shard while it is decoded, by the rows of all that is asked of it (`remaining.todo`).

    Opening it reads what is answered by now, and needs no engine.
    """

    def __init__(self, work: Work, rows: pl.DataFrame) -> None:
        self.work, self.rows = work, rows
        self.owed = set[str]()  # the prompts of the current attempt that have no answer yet
        self._buffer: list[dict[str, Any]] = []
        self._refusals: list[dict[str, Any]] = []
        self._thoughts: list[Mapping[str, Any]] = []
        self._spent: list[Counts] = []
        self._kept, self._refused, self._trial = empty(work.table), empty("errors"), Trial()
        self.is_published = False
        try:
            self._read()
        except (FileNotFoundError, DamagedFileError):
            if not remaining.is_published(work):
                raise
            self.is_published = True  # another engine has, and clears the chunks away
        self.n_left = 0 if self.is_published else self.left().height
        self.killed_nobody = not self._trial.begun and not self._trial.queue

    def _read(self) -> None:
        """Read what is kept of it; an object store is asked all of it at once."""
        work, store = self.work, self.work.artifact.store
        self.is_published, chunks, self._refused, self._trial = store.at_once(
            partial(remaining.is_published, work),
            partial(work.artifact.published, work.chunks),
            partial(remaining.refused, work),
            partial(read_trial, work.artifact, work.open_name),
        )
        if self.is_published:
            return
        read = partial(work.artifact.read_chunk, work.table, work.chunks)
        published = store.each(read, chunks)
        self._spent = [counts for _, counts in published]
        self._kept = remaining.one_per_prompt(work.table, published)

    def left(self) -> pl.DataFrame:
        """Its prompts that have no answer yet, were not refused one, and are not condemned."""
        refused = pl.concat([self._refused, _frame("errors", self._refusals)])
        kept = pl.concat([self._kept, _frame(self.work.table, self._buffer)])
        rows = self.rows.join(kept, on="prompt_id", how="anti", maintain_order="left")
        rows = rows.join(refused, on="prompt_id", how="anti", maintain_order="left")
        return rows.filter(~pl.col("prompt_id").is_in(self._trial.condemned))

    def begin(self, engine: Clocked, report: Report, again: int = 0) -> None:
        """Have an engine answer it, and what is done reported; `again` were lost with another."""
        self.report = report
        self._tally = _Tally(report, self.work, engine, again)
        rows = self.work.rows_per_chunk
        self._rows_per_chunk = min(rows, _PAID_CHUNK) if engine.is_paid else rows
        self._flushed = time.monotonic()

    def attempt(self) -> pl.DataFrame:
        """Note that an attempt begins; returns the prompts that are asked in it, which are owed.

        Fewer than are left, where the current ones have seen too many engines die.

        Raises:
            DecodingError: engines die of more prompts than can be by chance.
        """
        left, work = self.left(), self.work
        self._trial = self._trial.narrowed(left["prompt_id"].to_list(), work.max_deaths)
        condemned = self._trial.condemned
        if len(condemned) > max(_MAX_CONDEMNED, work.max_failed_share * self.rows.height):
            raise DecodingError(
                f"shard {work.shard}: engines die of {len(condemned)} of its "
                f"{self.rows.height} prompts."
            )
        left = left.filter(~pl.col("prompt_id").is_in(condemned))
        ids = self._trial.current(left["prompt_id"].to_list())
        self._trial = replace(self._trial, begun=self._trial.begun + 1)
        write_trial(work.artifact, work.open_name, self._trial)
        asked = left.filter(pl.col("prompt_id").is_in(ids))
        self.owed = set(asked["prompt_id"])
        return asked

    @property
    def asks_all(self) -> bool:
        """Whether the current attempt asks all that is left."""
        return not self._trial.queue

    def survived(self) -> None:
        """Note that an attempt is over."""
        self._trial = self._trial.survived()

    def keep(self, prompt_id: str, answered: Answered) -> bool:
        """Keep an answer that is owed, or why there is none.

        Returns whether whom it is reported to asks to stop.
        """
        self.owed.remove(prompt_id)
        if answered.error is None:
            self._buffer.append(answered.row)
        else:
            self._refusals.append({**answered.error, "stage": "decode"})
        if answered.thought is not None:
            self._thoughts.append(answered.thought)
        return self._tally.count(answered.counts)

    @property
    def of_a_chunk(self) -> float:
        """Which part of a chunk is finished and not published; one that is old is a whole one."""
        if time.monotonic() - self._flushed >= self.work.seconds_per_chunk:
            return 1.0
        return (len(self._buffer) + len(self._refusals)) / self._rows_per_chunk

    def flush(self) -> None:
        """Publish what is finished as a chunk, under a name that no other engine uses.

        What was refused goes first: the counts, which are the answers' chunk's, cover both. So do
        thoughts: no answer is there without its own.
        """
        work = self.work
        if self._thoughts:
            thoughts, self._thoughts = _frame("thoughts", self._thoughts), []
            work.artifact.write_chunk("thoughts", work.thoughts, uuid4().hex, thoughts)
        if self._refusals:
            frame = _frame("errors", self._refusals)
            work.artifact.write_chunk("errors", work.refusals, uuid4().hex, frame)
            self._refused = pl.concat([self._refused, frame])
        if self._buffer or self._refusals:
            self._refusals = []
            frame = _frame(work.table, self._buffer)
            counts = self._take()
            where = work.table, work.chunks, f"{frame.height}-{uuid4().hex}"
            work.artifact.write_chunk(*where, frame, counts)
            self._spent.append(counts)
            self._kept, self._buffer = pl.concat([self._kept, frame]), []
        self._flushed = time.monotonic()

    def pause(self) -> None:
        """Leave it open for another run; this attempt killed nobody."""
        self.flush()
        spared = replace(self._trial, begun=self._trial.begun - 1)
        write_trial(self.work.artifact, self.work.open_name, spared)

    def close(self) -> "OpenShard":
        """Keep all answers: the engine has done its part, and what it dies of now is another's."""
        if self.is_published:
            return self
        self._tally.flush()
        spared = partial(write_trial, self.work.artifact, self.work.open_name, self._trial)
        self.work.artifact.store.at_once(self.flush, spared)
        if not self._spent:
            self._spent.append(self._take())
        return self

    def publish(self) -> pl.DataFrame:
        """Publish it in the order of its prompts, unless another engine has; the published rows.

        Its counts are those of its chunks, whichever run decoded them.
        """
        work = self.work
        asked = self.rows.select("prompt_id")
        answered = asked.join(self._kept, on="prompt_id", maintain_order="left")
        if work.question.further:
            ids, found = answered.select("prompt_id"), self._all_thoughts()
            thoughts = ids.join(found, on="prompt_id", how="left", maintain_order="left")
            if not found.is_empty():
                work.artifact.publish("thoughts", work.shard, thoughts)
        sums = Counter[str]()
        for each in self._spent:
            sums.update(numbers(each))
        names = sorted({str(each.get("hardware")) for each in self._spent})
        counts: Counts = {**sums, "model": work.model, "hardware": " + ".join(names)}
        return work.artifact.publish(work.table, work.shard, answered, counts)

    def refuse_condemned(self) -> None:
        """Publish as refused what engines have died of, so that nobody asks it again."""
        condemned = self.rows.filter(pl.col("prompt_id").is_in(self._trial.condemned))
        rows = condemned.join(self._refused, on="prompt_id", how="anti", maintain_order="left")
        if not rows.is_empty():
            work = self.work
            work.artifact.write_chunk("errors", work.refusals, uuid4().hex, died(work, rows))

    def _all_thoughts(self) -> pl.DataFrame:
        """What was thought before all answers so far, by whichever engine."""
        artifact, folder = self.work.artifact, self.work.thoughts
        read = partial(artifact.read_chunk, "thoughts", folder)
        try:
            found = artifact.store.each(read, artifact.published(folder))
        except DamagedFileError:
            if not remaining.is_published(self.work):
                raise
            found = []  # another engine has published them, and cleared them away
        return remaining.one_per_prompt("thoughts", found)

    def _take(self) -> Counts:
        return {**self._tally.take(), "hardware": self.work.hardware.name}


def died(work: Work, prompts: pl.DataFrame) -> pl.DataFrame:
    """The error rows of prompts that engines have died of."""
    stage, reason = pl.lit("decode"), pl.lit("engine_died")
    detail = pl.lit(f"{work.max_deaths} engines died while they answered it alone")
    return prompts.select("prompt_id", stage=stage, reason=reason, detail=detail)


def _frame(table: str, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=empty(table).schema)


class _Tally:
    """Counts what is answered: reported now and then, and kept with the chunk."""

    def __init__(self, report: Report, work: Work, engine: Clocked, again: int) -> None:
        self._report = report
        self._hardware = work.hardware
        self._engine = engine
        twice = {"answers_given_twice": again} if again else {}
        self._pending, self._taken = Counter[str](), Counter[str](twice)
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


Ids = tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """Which prompt kills engines: the record of an open shard's attempts, next to its chunks.

    An engine may die of the machine it is on, or of what it is asked. A shard that has seen
    `max_deaths` attempts begun and none finished is answered in small groups, then one prompt at
    a time; a prompt that has alone seen as many is condemned: it becomes an error row, and the
    rest continues.

    `begun` attempts at the first group of the queue; an empty queue means all that is left.
    """

    begun: int = 0
    queue: tuple[Ids, ...] = ()
    condemned: Ids = ()

    def current(self, left: Sequence[str]) -> Ids:
        """What is to be answered now, of the prompts that are left."""
        return self.queue[0] if self.queue else tuple(left)

    def survived(self) -> "Trial":
        """The current group was answered."""
        return replace(self, begun=0, queue=self.queue[1:])

    def narrowed(self, left: Sequence[str], max_deaths: int) -> "Trial":
        """The trial with suspects few enough for what has happened to them.

        >>> trial = Trial(begun=3).narrowed(["a", "b"], max_deaths=3)
        >>> trial.queue
        (('a',), ('b',))
        >>> Trial(begun=3, queue=(("a",), ("b",))).narrowed(["a", "b"], max_deaths=3).condemned
        ('a',)
        """
        current = self.current(left)
        if self.begun < max_deaths:
            return self
        if len(current) == 1:
            return Trial(condemned=(*self.condemned, *current))
        size = _GROUP if len(current) > _GROUP else 1
        parts = [current[i : i + size] for i in range(0, len(current), size)]
        return Trial(queue=(*parts, *self.queue[1:]), condemned=self.condemned)


def read_trial(artifact: Artifact, name: str) -> Trial:
    """The trial of an open shard; a new one if it was never begun.

    Raises:
        DamagedFileError: it is not what was written.
    """
    try:
        content = artifact.note(_trial_name(name), "begun", "queue", "condemned")
    except FileNotFoundError:
        return Trial()
    queue = tuple(map(tuple, content["queue"]))
    return Trial(content["begun"], queue, tuple(content["condemned"]))


def write_trial(artifact: Artifact, name: str, trial: Trial) -> None:
    """Publish the trial, before the attempt that it speaks of."""
    content = {"begun": trial.begun, "queue": trial.queue, "condemned": trial.condemned}
    artifact.put_note(_trial_name(name), content)


def drop_trial(artifact: Artifact, name: str) -> None:
    """Forget the trial of a shard that is published."""
    artifact.drop(_trial_name(name))


def forget_trials(artifact: Artifact) -> None:
    """Forget the trials of an earlier run; that of a published shard stays until it is cleared."""
    for shard in remaining.with_trial(artifact, artifact.stage).difference(
        artifact.shards(artifact.stage)
    ):
        drop_trial(artifact, f"{artifact.stage}/{shard}")


def _trial_name(shard: str) -> str:
    return f"trials/{shard}.json"

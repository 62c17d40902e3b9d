"""An open shard: the prompts asked, the answers so far in chunks, and the record of its attempts.

Chunks become the shard when the last prompt is answered. A published prompt is never asked again.
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
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.engine import TimedEngine
from factsweep.pipeline.decoding.remaining_prompts import Work
from factsweep.pipeline.stages.question import AnswerRow
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.shard import Counts, sum_counts

_REPORT_EVERY_S = 0.5
_PAID_CHUNK = 32  # paid answers are kept sooner: a killed run would pay for them again
_GROUP = 16  # prompts that a shard is divided into when it has killed engines
_MAX_CONDEMNED = 3  # of a shard: more of them than this, or than may fail, have another cause

# Takes the counts since the last report; returns whether the run is to stop.
Report = Callable[[dict[str, float]], bool]


class OpenShard:
    """A shard while it is decoded; `rows` are the prompts that remain (remaining_prompts.py).

    The constructor reads the answers so far, and needs no engine.
    """

    def __init__(self, work: Work, rows: pl.DataFrame) -> None:
        self.work, self.rows = work, rows
        self.owed = set[str]()  # the prompts of the current attempt that have no answer yet
        self._buffer: list[dict[str, Any]] = []
        self._refusals: list[dict[str, Any]] = []
        self._thoughts: list[Mapping[str, Any]] = []
        self._chunk_counts: list[Counts] = []
        self._kept, self._refused, self._trial = empty(work.table), empty("errors"), Trial()
        self.is_published = False
        try:
            self._read_state()
        except (FileNotFoundError, DamagedFileError):
            if not remaining_prompts.is_published(work):
                raise
            self.is_published = True  # another engine published it and removed the chunks
        self.n_left = 0 if self.is_published else self.pending_prompts().height
        self.killed_nobody = not self._trial.begun and not self._trial.queue

    def _read_state(self) -> None:
        work, store = self.work, self.work.artifact.store
        self.is_published, chunks, self._refused, self._trial = store.at_once(
            partial(remaining_prompts.is_published, work),
            partial(work.artifact.list_published, work.chunks),
            partial(remaining_prompts.read_refusals, work),
            partial(read_trial, work),
        )
        if self.is_published:
            return
        read = partial(work.artifact.read_chunk, work.table, work.chunks)
        frames = store.each(read, chunks)
        self._chunk_counts = [counts for _, counts in frames]
        self._kept = remaining_prompts.concat_distinct(work.table, frames)

    def pending_prompts(self) -> pl.DataFrame:
        """Its prompts that are neither answered, refused nor condemned."""
        rows = self.rows.filter(~pl.col("prompt_id").is_in(self._trial.condemned))
        buffers = _to_frame(self.work.table, self._buffer), _to_frame("errors", self._refusals)
        for finished in (self._kept, self._refused, *buffers):
            rows = rows.join(finished, on="prompt_id", how="anti", maintain_order="left")
        return rows

    def begin(self, engine: TimedEngine, report: Report, n_lost: int = 0) -> None:
        """Start decoding by an engine; `n_lost` answers were lost with another engine."""
        self.report = report
        self._tally = _Tally(report, self.work, engine, n_lost)
        rows = self.work.rows_per_chunk
        self._rows_per_chunk = min(rows, _PAID_CHUNK) if engine.is_paid else rows
        self._flushed = time.monotonic()

    def attempt(self) -> pl.DataFrame:
        """Record the start of an attempt; returns its prompts.

        These are fewer than are left where the current ones have seen too many engines die.

        Raises:
            DecodingError: engines die of more prompts than chance explains.
        """
        rows_left, work = self.pending_prompts(), self.work
        self._trial = self._trial.narrow(rows_left["prompt_id"].to_list(), work.max_deaths)
        condemned = self._trial.condemned
        if len(condemned) > max(_MAX_CONDEMNED, work.max_failed_share * self.rows.height):
            raise DecodingError(
                f"shard {work.shard}: engines die of {len(condemned)} of its "
                f"{self.rows.height} prompts."
            )
        rows_left = rows_left.filter(~pl.col("prompt_id").is_in(condemned))
        ids = self._trial.current(rows_left["prompt_id"].to_list())
        self._trial = replace(self._trial, begun=self._trial.begun + 1)
        write_trial(work, self._trial)
        prompts = rows_left.filter(pl.col("prompt_id").is_in(ids))
        self.owed = set(prompts["prompt_id"])
        return prompts

    @property
    def asks_all(self) -> bool:
        """Whether the current attempt has all prompts that are left."""
        return not self._trial.queue

    def note_survival(self) -> None:
        """Record that an engine survived the attempt."""
        self._trial = self._trial.after_survival()

    def keep(self, prompt_id: str, answered: AnswerRow) -> bool:
        """Keep an answer or its error row; returns whether the run is to stop."""
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
        """The part of a chunk that waits to be published; 1 after `seconds_per_chunk`."""
        if time.monotonic() - self._flushed >= self.work.seconds_per_chunk:
            return 1.0
        return (len(self._buffer) + len(self._refusals)) / self._rows_per_chunk

    def flush(self) -> None:
        """Publish finished answers as a chunk of unique name.

        Thoughts and refusals are published before the answers, whose counts cover them.
        """
        work, artifact = self.work, self.work.artifact
        if self._thoughts:
            thoughts, self._thoughts = _to_frame("thoughts", self._thoughts), []
            artifact.write_chunk("thoughts", work.thoughts, uuid4().hex, thoughts)
        has_rows = self._buffer or self._refusals
        if self._refusals:
            errors = _to_frame("errors", self._refusals)
            artifact.write_chunk("errors", work.refusals, uuid4().hex, errors)
            self._refused, self._refusals = pl.concat([self._refused, errors]), []
        if has_rows:
            frame, counts = _to_frame(work.table, self._buffer), self._take_counts()
            name = f"{frame.height}-{uuid4().hex}"
            artifact.write_chunk(work.table, work.chunks, name, frame, counts)
            self._chunk_counts.append(counts)
            self._kept, self._buffer = pl.concat([self._kept, frame]), []
        self._flushed = time.monotonic()

    def pause(self) -> None:
        """Leave it open for another run; this attempt killed no engine."""
        self.flush()
        write_trial(self.work, replace(self._trial, begun=self._trial.begun - 1))

    def close(self) -> "OpenShard":
        """Publish all answers as chunks; a later death of the engine has another cause."""
        if self.is_published:
            return self
        self._tally.flush()
        write = partial(write_trial, self.work, self._trial)
        self.work.artifact.store.at_once(self.flush, write)
        if not self._chunk_counts:
            self._chunk_counts.append(self._take_counts())
        return self

    def publish(self) -> pl.DataFrame:
        """Publish it in the order of its prompts with the counts of its chunks, once.

        Returns the published rows: those of another engine if that was faster.
        """
        work = self.work
        ids = self.rows.select("prompt_id")
        answers = ids.join(self._kept, on="prompt_id", maintain_order="left")
        if work.question.extra_tables:
            thoughts = self._read_thoughts()
            if not thoughts.is_empty():
                ids = answers.select("prompt_id")
                thoughts = ids.join(thoughts, on="prompt_id", how="left", maintain_order="left")
                work.artifact.publish("thoughts", work.shard, thoughts)
        names = sorted({str(counts.get("hardware")) for counts in self._chunk_counts})
        sums = sum_counts(self._chunk_counts)
        total: Counts = {**sums, "model": work.model, "hardware": " + ".join(names)}
        return work.artifact.publish(work.table, work.shard, answers, total)

    def refuse_condemned(self) -> None:
        """Publish condemned prompts as refused, so that they are not asked again."""
        condemned = self.rows.filter(pl.col("prompt_id").is_in(self._trial.condemned))
        rows = condemned.join(self._refused, on="prompt_id", how="anti", maintain_order="left")
        if not rows.is_empty():
            work = self.work
            work.artifact.write_chunk(
                "errors", work.refusals, uuid4().hex, build_death_errors(work, rows)
            )

    def _read_thoughts(self) -> pl.DataFrame:
        artifact, folder = self.work.artifact, self.work.thoughts
        read = partial(artifact.read_chunk, "thoughts", folder)
        try:
            chunks = artifact.store.each(read, artifact.list_published(folder))
        except DamagedFileError:
            if not remaining_prompts.is_published(self.work):
                raise
            chunks = []  # another engine published the shard and removed them
        return remaining_prompts.concat_distinct("thoughts", chunks)

    def _take_counts(self) -> Counts:
        return {**self._tally.take(), "hardware": self.work.hardware.name}


def build_death_errors(work: Work, prompts: pl.DataFrame) -> pl.DataFrame:
    """The error rows of prompts that killed engines."""
    stage, reason = pl.lit("decode"), pl.lit("engine_died")
    detail = pl.lit(f"{work.max_deaths} engines died while they answered it alone")
    return prompts.select("prompt_id", stage=stage, reason=reason, detail=detail)


def _to_frame(table: str, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=empty(table).schema)


class _Tally:
    """Counts the answers of a shard: reported now and then, and kept with each chunk."""

    def __init__(self, report: Report, work: Work, engine: TimedEngine, n_lost: int) -> None:
        self._report, self._hardware, self._engine = report, work.hardware, engine
        self._counts, self._reported, self._taken = Counter[str](), Counter[str](), Counter[str]()
        self._again = {"answers_given_twice": n_lost} if n_lost else {}
        self._reported_at = -math.inf  # the first answer is reported at once

    def count(self, counts: Mapping[str, float]) -> bool:
        """Count an answer; returns whether the run is to stop."""
        self._counts.update(counts)
        return time.monotonic() - self._reported_at > _REPORT_EVERY_S and self.flush()

    def flush(self) -> bool:
        """Report the counts since the last report; returns whether the run is to stop."""
        new = self._counts_since(self._reported)
        self._reported, self._reported_at = self._counts.copy(), time.monotonic()
        return self._report(new)

    def _counts_since(self, earlier: Counter[str]) -> dict[str, float]:
        return {name: n - earlier[name] for name, n in self._counts.items()}

    def take(self) -> dict[str, float]:
        """The counts and the cost since the last call."""
        seconds, idle_seconds = self._engine.take_usage()
        new = self._counts_since(self._taken)
        lost, self._again, self._taken = self._again, {}, self._counts.copy()
        hardware, n_prompts = self._hardware, new.get("prompts", 0)
        tokens = new.get("prompt_tokens", 0), new.get("output_tokens", 0)
        return {
            **lost,
            **new,
            **({} if hardware.prices is None else {"cost": hardware.prices.of(*tokens)}),
            "seconds": seconds,
            "idle_seconds": idle_seconds,
            "gpu_seconds": seconds * hardware.gpus / hardware.per_gpu,
            "core_seconds": seconds * hardware.cores,
            f"prompts at tensor_parallel={hardware.tensor_parallel}": n_prompts,
        }


Ids = tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """Finds the prompt that kills engines: the record of an open shard's attempts.

    After `max_deaths` attempts without an end, a shard is divided into small groups, then into
    single prompts; a prompt that reaches the limit alone is condemned and becomes an error row.
    `begun` counts the attempts at the first group of the queue; an empty queue means all prompts.
    """

    begun: int = 0
    queue: tuple[Ids, ...] = ()
    condemned: Ids = ()

    def current(self, ids_left: Sequence[str]) -> Ids:
        """The prompts of the next attempt, of the prompts that are left."""
        return self.queue[0] if self.queue else tuple(ids_left)

    def after_survival(self) -> "Trial":
        """The trial after the current group was answered."""
        return replace(self, begun=0, queue=self.queue[1:])

    def narrow(self, ids_left: Sequence[str], max_deaths: int) -> "Trial":
        """The trial with a smaller current group if that has seen `max_deaths` engines die.

        >>> trial = Trial(begun=3).narrow(["a", "b"], max_deaths=3)
        >>> trial.queue
        (('a',), ('b',))
        >>> Trial(begun=3, queue=(("a",), ("b",))).narrow(["a", "b"], max_deaths=3).condemned
        ('a',)
        """
        current = self.current(ids_left)
        if self.begun < max_deaths:
            return self
        if len(current) == 1:
            return Trial(condemned=(*self.condemned, *current))
        size = _GROUP if len(current) > _GROUP else 1
        groups = [current[i : i + size] for i in range(0, len(current), size)]
        return Trial(queue=(*groups, *self.queue[1:]), condemned=self.condemned)


def read_trial(work: Work) -> Trial:
    """The trial of an open shard; a new one if it was never begun.

    Raises:
        DamagedFileError: its content is damaged.
    """
    try:
        content = work.artifact.note(work.trial, "begun", "queue", "condemned")
    except FileNotFoundError:
        return Trial()
    queue = tuple(map(tuple, content["queue"]))
    return Trial(content["begun"], queue, tuple(content["condemned"]))


def write_trial(work: Work, trial: Trial) -> None:
    """Publish the trial of an open shard, before the attempt that it counts."""
    content = {"begun": trial.begun, "queue": trial.queue, "condemned": trial.condemned}
    work.artifact.put_note(work.trial, content)


def forget_trials(artifact: Artifact) -> None:
    """Remove the trials of an earlier run, except those of published shards."""
    published = artifact.shards(artifact.stage)
    for shard in remaining_prompts.find_trials(artifact, artifact.stage).difference(published):
        artifact.drop(f"trials/{artifact.stage}/{shard}.json")

"""The page of a run that goes on: <results>/<run>/progress.html, with what is measured so far.

The driver writes it, now and then; at the end it leads to the finished page, index.html, which is
never written before. What is on it is measured by a process of its own, which yields to engines and
rests for most of the time. Whatever fails here is logged, and the run goes on.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import ray

from factsweep.operators.errors import FactsweepError, reason
from factsweep.operators.pages import page
from factsweep.operators.pages.page import Progress
from factsweep.operators.wording import count
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.execution.cluster import beside_driver
from factsweep.pipeline.execution.plan import Plan
from factsweep.pipeline.live.measuring import Measures, SoFar
from factsweep.pipeline.live.pulse import State
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.machine.secrets import hidden
from factsweep.pipeline.results import report
from factsweep.pipeline.results.record import ESTIMATES_PAGE

NAME = "progress.html"
_NICE = 10

Counts = Mapping[str, float]


class _Measurer:
    """The process that measures: an actor."""

    def __init__(self, plan: Plan, measures: type[Measures[Any]]) -> None:
        os.nice(_NICE)
        self._measures = measures(plan)

    def so_far(self) -> SoFar:
        return self._measures.so_far()


class LivePage:
    """The page of a run of this process, with what `measures` finds measured by now."""

    def __init__(self, plan: Plan, measures: type[Measures[Any]]) -> None:
        self._plan = plan
        self._measures = measures
        wanted_s = plan.run.cluster.page_every_s
        self._every_s = min(wanted_s, measures.every_s) if wanted_s else math.inf
        self._found = SoFar(None, ())
        self._measurer: Any = None
        self._pending: Any = None
        self._asked_at = 0.0
        self._measure_at = time.monotonic() + self._every_s
        self._write_at = 0.0
        self._said = ""
        self._n_measured: float | None = None
        # Shards that earlier runs have answered; of parts of shards nothing says how many.
        self._n_before = None if measures.whole_shards else 0
        self._news: list[str] = []

    @property
    def where(self) -> str | None:
        """Where it lies; null: none is wanted."""
        return None if self._every_s == math.inf else report.folder(self._plan.run).where(NAME)

    def show(self, counts: Counts) -> None:
        """Renew the page, if it is time; waits for nothing but the disk."""
        if self._every_s == math.inf:
            return
        try:
            now = time.monotonic()
            self._measure(counts, now)
            if now >= self._write_at:
                self._write_at = now + self._every_s
                self._write(counts)
        except Exception as error:  # whatever it is, the run does not need the page
            self._failed(error)

    def news(self) -> Iterator[str]:
        """The headlines that were not there before."""
        while self._news:
            yield self._news.pop(0)

    def close(self, counts: Counts) -> None:
        """Write it for the last time, and end the process that measures."""
        if self._every_s == math.inf:
            return
        try:
            if self._measurer is not None:
                ray.kill(self._measurer)
            self._write(counts)
        except Exception as error:
            self._failed(error)

    def _measure(self, counts: Counts, now: float) -> None:
        """Ask for what is measured by now, or take the answer if it is there."""
        if self._pending is None:
            if now >= self._measure_at and counts.get("shards") != self._n_measured:
                self._n_measured = counts.get("shards")
                self._asked_at = now
                self._pending = self._process().so_far.remote()
            return
        done, _ = ray.wait([self._pending], timeout=0)
        if done:
            self._pending = None
            rest_s = self._measures.rest * (now - self._asked_at)
            self._measure_at = now + max(self._every_s, rest_s)
            measurer, self._measurer = self._measurer, None  # another, if this one has died
            self._take(ray.get(done[0]))
            self._measurer, self._write_at = measurer, now

    def _take(self, found: SoFar) -> None:
        """Take what is measured by now, and write its tables."""
        self._news += [each for each in found.headlines if each not in self._found.headlines]
        if found.files != self._found.files:
            for name, content in found.files.items():
                report.folder(self._plan.run).put(name, content)
        self._found = found

    def _process(self) -> Any:
        if self._measurer is None:
            actor = ray.remote(num_cpus=0, scheduling_strategy=beside_driver())(_Measurer)
            self._measurer = actor.remote(self._plan, self._measures)
        return self._measurer

    def _write(self, counts: Counts) -> None:
        run = self._plan.run
        content = self._found.page or page.waiting(f"{run.model.name} on {run.benchmark.name}")
        progress = Progress(
            f"Partial, as of {_utc()}: {self._shards(counts)}.",
            self._measures.said if self._found.notes else "Nothing is measured yet.",
            self._found.notes,
            f"The run goes on, and this page is renewed every {self._every_s:g} seconds. "
            "An old time means that the run was killed.",
            self._every_s,
        )
        report.folder(run).put(NAME, page.renewed(content, progress).encode())

    def _shards(self, counts: Counts) -> str:
        if not counts.get("all_shards"):
            return "no prompts to answer yet"
        if to_come := int(counts.get("to_come", 0)):
            answered = count(counts.get("shards", 0), "shard")
            return f"{answered} answered, {count(to_come, 'setting')} to come"
        if self._n_before is None:
            shards = {
                artifact.folder: len(branch.prompts.shards(question.source))
                for branch in self._plan.branches
                for artifact, question in branch.asked()
            }
            self._n_before = sum(shards.values()) - int(counts["all_shards"])
        done, of = (int(counts.get(n, 0)) + self._n_before for n in ("shards", "all_shards"))
        left = count(counts["all_answers"] - counts["answers"], "answer")
        noun = "shard" if self._measures.whole_shards else "part"
        return f"{done:,} of {count(of, noun)} are answered, {left} left"

    def _failed(self, error: Exception) -> None:
        """Log what went wrong; the same only once."""
        cause = getattr(error, "cause", None)  # of one in the process that measures
        why = hidden(reason(cause if isinstance(cause, Exception) else error))
        if why != self._said:
            self._said = why
            LOG.warning("%s cannot be renewed (%s); the run goes on.", NAME, why)


def ended(run: Run, state: State, why: str | None) -> None:
    """Say on the page of a run how it ended; that of one that is done leads to its results."""
    store = report.folder(run)
    how = "was stopped" if state == "stopped" else f"{state}: {(why or 'see its log').rstrip('.')}"
    kept = "What is published is kept, and the next run resumes from there."
    text = f"At {_utc()} the run {how}. {kept}"
    try:
        if not store.exists(NAME):
            return
        if state == "done":
            results = report.PAGE if run.budget is None else ESTIMATES_PAGE
            store.put(NAME, page.forward(results).encode())
        else:
            store.put(NAME, page.ended(store.get(NAME).decode(), text).encode())
    except (FactsweepError, OSError, UnicodeDecodeError) as error:
        LOG.warning("%s cannot say that the run %s (%s).", store.where(NAME), state, error)


def _utc() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

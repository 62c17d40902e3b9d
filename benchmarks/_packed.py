"""A cluster that is made up, on which the models of a study are packed as on a real one.

Shown by `benchmarks/bench_packing.py`, and tested at a small size. What begins when is decided by
`pipeline/studies/packing.py`; here are shards, engines whose speeds differ, deaths, and models that
take longer or shorter than was forecast.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import polars as pl

from factsweep.operators.tables.runs.busy import ANSWERING, LOADING, SPANS
from factsweep.pipeline.studies.packing import Demand, Job, in_line, may_begin

_FAILS_AFTER = 3  # engines of a model that cannot load


@dataclass
class _Engine:
    """An engine: its GPUs of a node, its speed, and what it is at."""

    name: str
    node: int
    gpus: list[int]
    speed: float
    shard: float | None = None
    since: float = 0.0
    is_ready: bool = False
    lives: int = 1


@dataclass
class _Run:
    """A model that has begun."""

    job: Job
    to_come: int
    shards: list[float]  # seconds of one engine, the largest last
    loads_s: float
    engines: list[_Engine] = field(default_factory=list)


@dataclass(frozen=True)
class World:
    """What a forecast does not know.

    `shards` are of each job in seconds of one engine. Engines of `broken` do not load. Each of
    `deaths` is when an engine dies, of those that answer then the first. `begins_s` is from the
    start of a run to its engines, `speeds` the spread of these.
    """

    shards: Mapping[str, Sequence[float]]
    loads_s: Mapping[str, float]
    broken: frozenset[str] = frozenset()
    deaths: tuple[float, ...] = ()
    begins_s: float = 20.0
    speeds: float = 0.05
    seed: int = 0


class Cluster:
    """Nodes with GPUs on which the runs of a study go on, by a clock that is made up."""

    def __init__(
        self, jobs: Sequence[Job], engines: Mapping[str, int], nodes: Sequence[int], of: World
    ) -> None:
        self._engines, self._of = engines, of
        self._line = in_line(jobs, engines)
        self._free = [list(range(n)) for n in nodes]
        self._there = sum(nodes)
        self._runs = list[_Run]()
        self._rng = np.random.default_rng(of.seed)
        self._order = count()
        self._events = list[tuple[float, int, str, _Run | None, _Engine | None, int]]()
        self.spans = list[tuple[object, ...]]()
        self.failed = set[str]()
        self.now = 0.0
        self.answered = dict.fromkeys((job.name for job in jobs), 0)

    def ran(self) -> pl.DataFrame:
        """What the engines did, to the end (columns: SPANS)."""
        for at in self._of.deaths:
            self._at(at, "death")
        self._begin()
        while self._events:
            self.now, _, what, run, engine, life = heapq.heappop(self._events)
            if engine is not None and engine.lives != life:
                continue  # it has died meanwhile
            match what:
                case "placing" if run is not None:
                    self._place(run)
                case "loaded" if run is not None and engine is not None:
                    self._loaded(run, engine)
                case "answered" if run is not None and engine is not None:
                    self._answered(run, engine)
                case "death":
                    self._death()
            self._begin()
        return pl.DataFrame(self.spans, SPANS, orient="row")

    def _at(
        self, when: float, what: str, run: _Run | None = None, engine: _Engine | None = None
    ) -> None:
        life = 0 if engine is None else engine.lives
        heapq.heappush(self._events, (when, next(self._order), what, run, engine, life))

    def _begin(self) -> None:
        """Give engines that wait their GPUs, and begin what may begin."""
        for run in self._runs:
            if run.engines:
                self._place(run)
        demands = [Demand(run.job, min(run.to_come, len(run.shards))) for run in self._runs]
        while may_begin(self._line, [len(gpus) for gpus in self._free], demands):
            job = self._line.pop(0)
            loads_s = self._of.loads_s[job.name]
            shards = sorted(self._of.shards[job.name])
            run = _Run(job, min(self._engines[job.name], len(shards)), shards, loads_s)
            self._runs.append(run)
            demands.append(Demand(job, run.to_come))
            self._at(self.now + self._of.begins_s, "placing", run)

    def _place(self, run: _Run) -> None:
        while run.to_come and run.shards:
            n = int(run.job.gpus)
            fit = [node for node, gpus in enumerate(self._free) if len(gpus) >= n]
            if not fit:
                return
            node = min(fit, key=lambda node: len(self._free[node]))
            gpus, self._free[node] = self._free[node][:n], self._free[node][n:]
            name = f"{run.job.name}/{len(run.engines)}"
            engine = _Engine(name, node, gpus, self._rng.normal(1, self._of.speeds))
            run.engines.append(engine)
            run.to_come -= 1
            self._load(run, engine)

    def _load(self, run: _Run, engine: _Engine) -> None:
        engine.since, engine.is_ready = self.now, False
        self._at(self.now + run.loads_s, "loaded", run, engine)

    def _loaded(self, run: _Run, engine: _Engine) -> None:
        self._note(run, engine, LOADING)
        if run.job.name in self._of.broken:
            self._dies(run, engine)
            return
        engine.is_ready = True
        self._next(run, engine)

    def _dies(self, run: _Run, engine: _Engine) -> None:
        engine.lives += 1
        if run.job.name in self._of.broken and engine.lives > _FAILS_AFTER:
            self.failed.add(run.job.name)
            run.shards.clear()
        if run.job.name in self.failed:
            self._leave(run, engine)
        else:
            self._load(run, engine)

    def _next(self, run: _Run, engine: _Engine) -> None:
        if not run.shards:
            self._leave(run, engine)
            return
        engine.shard, engine.since = run.shards.pop(), self.now
        self._at(self.now + engine.shard / engine.speed, "answered", run, engine)

    def _answered(self, run: _Run, engine: _Engine) -> None:
        self._note(run, engine, ANSWERING)
        self.answered[run.job.name] += 1
        engine.shard = None
        self._next(run, engine)

    def _death(self) -> None:
        """The first engine that answers dies; who is free gets its shard, without what was done."""
        for run in self._runs:
            for engine in run.engines:
                if engine.shard is not None:
                    self._note(run, engine, ANSWERING)
                    done = (self.now - engine.since) * engine.speed
                    run.shards.append(max(0.0, engine.shard - done))
                    engine.shard = None
                    self._dies(run, engine)
                    return

    def _leave(self, run: _Run, engine: _Engine) -> None:
        run.engines.remove(engine)
        self._free[engine.node] += engine.gpus
        if not run.engines and not run.shards:
            self._runs.remove(run)

    def _note(self, run: _Run, engine: _Engine, doing: str) -> None:
        gpus = [f"{each:02d}" for each in engine.gpus]
        where = (run.job.name, engine.name, f"node {engine.node + 1}", gpus)
        self.spans.append((*where, doing, engine.since, self.now, self._there))

"""Counts the progress of a run and the deaths of its engines: a Ray actor that engines report to.

A run waits for its process, so this module imports little.
"""

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from factsweep.pipeline.config.cluster import Cluster

_IDLE_S = 30.0  # an engine without a shard counts as alive for this long after its last report
_LOADING = "loading"


class Loading(NamedTuple):
    """An engine that is loading its model: for how many seconds, on which node, and its log."""

    seconds: float
    node: str
    log: str


@dataclass
class _Life:
    """An engine: its node, its log, and its task: loading, or the prompts that it is asked."""

    node: str
    log: str
    doing: str = _LOADING
    born: float = field(default_factory=time.monotonic)


@dataclass
class _Place:
    """An engine of the pool and its successors; the causes of their deaths since an answer."""

    alive: _Life | None = None
    lost: _Life | None = None
    n_lives: int = 0
    deaths: dict[str, str] = field(default_factory=dict)


class Lives:
    """Counts engine deaths by place of the pool, and decides whether another engine is started.

    After `max_deaths` deaths at different tasks without an answer, the engine or its machine is at
    fault; on `one_machine`, after two of the same error. `Trial` finds a prompt that kills engines.
    """

    def __init__(self, max_deaths: int, *, one_machine: bool) -> None:
        self._max_deaths = max(2, max_deaths)
        self._one_machine = one_machine
        self._places: defaultdict[str, _Place] = defaultdict(_Place)
        self._last_death: str | None = None
        self._logs: list[tuple[str, str]] = []

    def register_engine(self, place: str, node: str, log: str) -> str | None:
        """An engine begins; returns the log of its predecessor if that died here unreported."""
        slot = self._places[place]
        slot.lost = slot.alive if slot.alive is not None and slot.alive.node == node else None
        slot.alive, slot.n_lives = _Life(node, log), slot.n_lives + 1
        self._logs.append((node, log))
        return slot.lost.log if slot.lost is not None else None

    def set_task(self, place: str, task: str) -> None:
        """The engine is loaded and gets a task: a single prompt or a shard."""
        if (life := self._places[place].alive) is not None:
            life.doing = task

    def clear_deaths(self, place: str) -> None:
        """The engine gave an answer."""
        self._places[place].deaths.clear()

    def note_end(self, place: str) -> None:
        """The engine ended on request."""
        self._places[place].alive = None

    def last_death(self) -> str | None:
        """The cause of the last death of an engine."""
        return self._last_death

    def logs(self) -> list[tuple[str, str]]:
        """The node and the log of every engine of the run."""
        return self._logs

    def suspects(self, place: str) -> list[str]:
        """The tasks at which engines died since the last answer."""
        return list(self._places[place].deaths)

    def loading(self) -> list[Loading]:
        """The engines that are loading their model, the oldest first."""
        lives = [slot.alive for slot in self._places.values() if slot.alive is not None]
        time_s = time.monotonic()
        loading = [life for life in lives if life.doing == _LOADING]
        return sorted((Loading(time_s - e.born, e.node, e.log) for e in loading), reverse=True)

    def note_death(self, place: str, cause: str) -> str | None:
        """The engine, or its lost predecessor, died; returns the reason if no other is started."""
        slot = self._places[place]
        life, slot.lost = slot.lost or slot.alive, None
        if life is None:
            return None
        if life is slot.alive:
            slot.alive = None
        task = f"{_LOADING} {slot.n_lives}" if life.doing == _LOADING else life.doing
        slot.deaths[task] = cause
        self._last_death = f"{cause.rstrip('.')}; its log is {life.log}"
        causes = list(slot.deaths.values())
        is_same_error = len({re.sub(r"\d+", "0", text) for text in causes[-2:]}) == 1 < len(causes)
        if len(causes) < self._max_deaths and not (is_same_error and self._one_machine):
            return None
        loaded = any(not task.startswith(_LOADING) for task in slot.deaths)
        failure = "answers nothing" if loaded else "does not load"
        return f"{failure}: {len(causes)} engines in a row died, the last of {self._last_death}."


class CostLimit:
    """A limit of costs: the sum paid, and the sum reserved for requests under way.

    A reservation of an engine that died stays: its requests may have been charged.
    """

    def __init__(self, limit: float = math.inf, spent: float = 0.0) -> None:
        self.set_limit(limit, spent)

    def set_limit(self, limit: float, spent: float) -> None:
        """Set the limit, and the sum that was paid before."""
        self.limit, self._spent, self.reserved = limit, spent, 0.0

    def reserve(self, cost: float) -> bool:
        """Reserve a sum; returns whether the limit allows it."""
        if self._spent + self.reserved + cost > self.limit:
            return False
        self.reserved += cost
        return True

    def settle(self, reserved: float, cost: float) -> None:
        """Pay for an answer, and free its reservation."""
        self.reserved -= reserved
        self._spent += cost

    def spent(self) -> float:
        """The sum paid."""
        return self._spent


class AttemptStart(NamedTuple):
    """Whether an engine is to stop, and how many answers of its shard were lost with another."""

    stop: bool
    n_lost: int


class Tally(Lives, CostLimit):
    """Counts of all engines, the answers that are left, and which engine is at which shard.

    An engine at a shard is alive until `stall_s` after its last report, or until another engine
    begins the shard.
    """

    def __init__(
        self, stall_s: float = math.inf, max_deaths: int = 3, *, one_machine: bool = False
    ) -> None:
        Lives.__init__(self, max_deaths, one_machine=one_machine)
        CostLimit.__init__(self)
        self._stall_s = stall_s
        self._counts: Counter[str] = Counter()
        self._left: dict[str, int] = {}  # answers, by shard
        self._engine_by_shard: dict[str, str] = {}  # of the shards that are begun
        self._last_report: dict[str, float] = {}  # by engine
        self._notes: list[str] = []
        self._stopping = False
        self._draining_nodes: frozenset[str] = frozenset()

    def stop(self) -> None:
        """Ask all engines to stop at their next report."""
        self._stopping = True

    def drain_nodes(self, nodes: Collection[str]) -> None:
        """Ask the engines on draining nodes to stop at their next report."""
        self._draining_nodes = frozenset(nodes)

    def is_leaving(self, engine: str) -> bool:
        """Whether the engine's node is draining."""
        life = self._places[engine].alive
        return life is not None and life.node in self._draining_nodes

    def announce(self, n_left: Mapping[str, int], to_come: int = 0) -> None:
        """Add the shards of a setting with the answers that each lacks; `to_come` settings wait."""
        new = {shard: n for shard, n in n_left.items() if shard not in self._left}
        self._left |= new
        self._counts.update(all_shards=len(new), all_answers=sum(new.values()))
        self._counts["to_come"] = to_come

    def begin(self, engine: str, shard: str, n_left: int) -> AttemptStart:
        """An engine begins a shard that lacks `n_left` answers.

        Unpublished answers of an engine that died at the shard are counted as `n_lost`.
        """
        n_lost = max(0, n_left - self._left.get(shard, n_left))
        self._engine_by_shard[shard] = engine
        self._left[shard] = n_left
        return AttemptStart(self.add({"again": n_lost}, engine), n_lost)

    def add(
        self, counts: Mapping[str, float], engine: str | None = None, shard: str | None = None
    ) -> bool:
        """Add the counts of an engine at a shard; returns whether the engine is to stop."""
        for name, value in counts.items():
            self._counts[name] += value  # type: ignore[assignment]
        if engine is None:
            return self._stopping
        self._last_report[engine] = time.monotonic()
        if counts.get("prompts"):
            self.clear_deaths(engine)
        if shard is not None and self._engine_by_shard.get(shard) == engine:
            self._left[shard] -= int(counts.get("answers", 0))
        return self._stopping or self.is_leaving(engine)

    def end(self, engine: str, shard: str) -> None:
        """An engine has published a shard; it may be at the next one already."""
        if self._engine_by_shard.get(shard) == engine:
            del self._engine_by_shard[shard]
            self._left[shard] = 0

    def note_ready(self) -> bool:
        """An engine is ready; returns whether it is the first one."""
        self._counts["started"] += 1
        return self._counts["started"] == 1

    def add_note(self, text: str) -> None:
        """Leave a sentence for the user."""
        self._notes.append(text)

    def read(self) -> tuple[dict[str, float], list[str]]:
        """The counts, and the sentences since the last reading.

        `decoded` counts every answer, `answers` only those not lost with an engine.
        """
        notes, self._notes = self._notes, []
        time_s, busy = time.monotonic(), set(self._engine_by_shard.values())
        n_alive = sum(
            time_s - last <= (self._stall_s if engine in busy else _IDLE_S)
            for engine, last in self._last_report.items()
        )
        counts: dict[str, float] = {**self._counts, "engines": n_alive}
        counts["loading"] = len(self.loading())
        counts["decoded"] = counts.get("answers", 0)
        counts["answers"] = counts.get("all_answers", 0) - sum(self._left.values())
        return counts, notes


def tally_actor(cluster: "Cluster") -> Any:
    """Start a Tally on the driver's node; after a crash it restarts with counts of 0."""
    import ray

    from factsweep.pipeline.cluster.ray_cluster import beside_driver

    options = {"scheduling_strategy": beside_driver()}
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, **options)(Tally)
    return actor.remote(cluster.stall_s, cluster.max_deaths, one_machine=cluster.address is None)


def count_refused(tally: Any) -> None:
    """Count a request that a store refused, from any process of the run."""
    tally.add.remote({"store_refused": 1})

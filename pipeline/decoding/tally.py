"""What all engines of a run have done so far: a Ray actor that they report to.

Its process loads this module, and little else: a run waits for it.
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

_IDLE_S = 30.0  # an engine without a shard is counted for so long after it was last heard of
_LOADING = "loading"


class Loading(NamedTuple):
    """An engine that is loading its model: for how many seconds, on which node, and its log."""

    seconds: float
    node: str
    log: str


@dataclass
class _Life:
    """An engine: its node, its log, and what it is doing: loading, or the prompts it is asked."""

    node: str
    log: str
    doing: str = _LOADING
    born: float = field(default_factory=time.monotonic)


@dataclass
class _Place:
    """An engine of the pool and its successors; what they died of since the last answer."""

    alive: _Life | None = None
    lost: _Life | None = None
    n_lives: int = 0
    deaths: dict[str, str] = field(default_factory=dict)


class Lives:
    """The lives of engines by their places: whether the next can be expected to do better.

    A dead engine is followed by another in its place. While those of a place die one after the
    other, each of something else, and none gives an answer, it is the engine or the machine that is
    at fault, not what was asked. A single prompt that kills engines is found by `Trial`.

    After `max_deaths` engines that answered nothing no other is tried; after two, where they die of
    the same error and `one_machine` says that there is no other machine to try.
    """

    def __init__(self, max_deaths: int, *, one_machine: bool) -> None:
        self._max_deaths = max(2, max_deaths)
        self._one_machine = one_machine
        self._places: defaultdict[str, _Place] = defaultdict(_Place)
        self._last_death: str | None = None
        self._logs: list[tuple[str, str]] = []

    def born(self, place: str, node: str, log: str) -> str | None:
        """An engine begins; returns the log of the one before it, if that died without a word.

        One that was lost with its node is forgotten: nobody can say what it died of.
        """
        at = self._places[place]
        at.lost = at.alive if at.alive is not None and at.alive.node == node else None
        at.alive, at.n_lives = _Life(node, log), at.n_lives + 1
        self._logs.append((node, log))
        return at.lost.log if at.lost is not None else None

    def asked(self, place: str, what: str) -> None:
        """The engine is loaded, and is asked this: a prompt alone, or a shard."""
        if (life := self._places[place].alive) is not None:
            life.doing = what

    def answered(self, place: str) -> None:
        """The engine gave an answer."""
        self._places[place].deaths.clear()

    def ended(self, place: str) -> None:
        """The engine ends because it was told to."""
        self._places[place].alive = None

    def node(self, place: str) -> str | None:
        """The node that the engine is on, where one is known to live."""
        life = self._places[place].alive
        return None if life is None else life.node

    def last_death(self) -> str | None:
        """What the last engine that died has died of."""
        return self._last_death

    def logs(self) -> list[tuple[str, str]]:
        """The node and the log of each engine that there was."""
        return self._logs

    def suspects(self, place: str) -> list[str]:
        """What engines died of since the last answer."""
        return list(self._places[place].deaths)

    def loading(self) -> list[Loading]:
        """The engines that are loading their model, the oldest first."""
        alive = [at.alive for at in self._places.values() if at.alive is not None]
        loading = [life for life in alive if life.doing == _LOADING]
        now = time.monotonic()
        found = [Loading(now - life.born, life.node, life.log) for life in loading]
        return sorted(found, reverse=True)

    def died(self, place: str, cause: str) -> str | None:
        """An engine died, the lost one if there is one; returns why no other is tried, if so."""
        at = self._places[place]
        life, at.lost = at.lost or at.alive, None
        if life is None:
            return None
        if life is at.alive:
            at.alive = None
        doing = f"{_LOADING} {at.n_lives}" if life.doing == _LOADING else life.doing
        at.deaths[doing] = cause
        self._last_death = f"{cause.rstrip('.')}; its log is {life.log}"
        causes = list(at.deaths.values())
        same = len({re.sub(r"\d+", "0", each) for each in causes[-2:]}) == 1 < len(causes)
        if len(causes) < self._max_deaths and not (same and self._one_machine):
            return None
        loaded = any(not each.startswith(_LOADING) for each in at.deaths)
        what = "answers nothing" if loaded else "does not load"
        return f"{what}: {len(causes)} engines in a row died, the last of {self._last_death}."


@dataclass
class Purse:
    """What may be spent in all, what is spent, and what is set aside for what is under way.

    What an engine that died had set aside stays so: nobody knows whether it was charged.
    """

    limit: float
    spent: float = 0.0
    reserved: float = 0.0

    def reserve(self, cost: float) -> bool:
        """Set something aside; returns whether there is so much left."""
        if self.spent + self.reserved + cost > self.limit:
            return False
        self.reserved += cost
        return True

    def settle(self, reserved: float, cost: float) -> None:
        """Pay for something with what was set aside for it."""
        self.reserved -= reserved
        self.spent += cost


class Begun(NamedTuple):
    """Whether an engine is to stop, and how many answers of its shard were lost with another."""

    stop: bool
    again: int


class Tally(Lives):
    """Counts that many engines add to, the answers that are left, and which engine is at work.

    An engine that has begun a shard and not ended it is alive, however long its batch takes: until
    its watchdog would have ended it (`stall_s` after its last report), or until Ray has handed its
    shard to another.
    """

    def __init__(
        self, stall_s: float = math.inf, max_deaths: int = 3, *, one_machine: bool = False
    ) -> None:
        super().__init__(max_deaths, one_machine=one_machine)
        self._stall_s = stall_s
        self._counts: Counter[str] = Counter()
        self._left: dict[str, int] = {}  # answers, by shard
        self._at: dict[str, str] = {}  # by shard: the engine that has begun it
        self._seen: dict[str, float] = {}
        self._notes: list[str] = []
        self._stopping = False
        self._purse = Purse(math.inf)
        self._going: frozenset[str] = frozenset()

    def stop(self) -> None:
        """Ask all engines to stop at their next report."""
        self._stopping = True

    def fund(self, limit: float, spent: float) -> None:
        """Say what may be spent in all, and what is spent already."""
        self._purse = Purse(limit, spent)

    def reserve(self, cost: float) -> bool:
        """Set something aside of what may be spent; returns whether there is so much left."""
        return self._purse.reserve(cost)

    def settle(self, reserved: float, cost: float) -> None:
        """Pay for something with what was set aside for it."""
        self._purse.settle(reserved, cost)

    def spent(self) -> float:
        """What is spent."""
        return self._purse.spent

    def leave(self, nodes: Collection[str]) -> None:
        """Ask the engines on these nodes, which are about to go, to stop at their next report."""
        self._going = frozenset(nodes)

    def is_leaving(self, engine: str) -> bool:
        """Whether the engine's node is about to go."""
        return self.node(engine) in self._going

    def announce(self, left: Mapping[str, int], to_come: int = 0) -> None:
        """Say how many answers each shard of a setting lacks; so many settings are to come."""
        new = {shard: n for shard, n in left.items() if shard not in self._left}
        self._left |= new
        self._counts.update(all_shards=len(new), all_answers=sum(new.values()))
        self._counts["to_come"] = to_come

    def begin(self, engine: str, shard: str, left: int) -> Begun:
        """An engine takes a shard that lacks so many answers.

        Where another engine died of it, what that one had not published is left to do again.
        """
        again = max(0, left - self._left.get(shard, left))
        self._at[shard] = engine
        self._left[shard] = left
        return Begun(self.add({"again": again}, engine), again)

    def add(
        self, counts: Mapping[str, float], engine: str | None = None, shard: str | None = None
    ) -> bool:
        """Add to the counts, in the name of an engine at a shard; returns whether it is to stop."""
        for name, value in counts.items():
            self._counts[name] += value  # type: ignore[assignment]
        if engine is not None:
            self._seen[engine] = time.monotonic()
            if counts.get("prompts"):
                self.answered(engine)
            if shard is not None and self._at.get(shard) == engine:
                self._left[shard] -= int(counts.get("answers", 0))
        return self._stopping or (engine is not None and self.is_leaving(engine))

    def end(self, engine: str, shard: str) -> None:
        """An engine has published a shard; it may be at the next one already."""
        if self._at.get(shard) == engine:
            del self._at[shard]
            self._left[shard] = 0

    def started(self) -> bool:
        """An engine is ready; returns whether it is the first one."""
        self._counts["started"] += 1
        return self._counts["started"] == 1

    def say(self, text: str) -> None:
        """Leave a sentence for the user."""
        self._notes.append(text)

    def read(self) -> tuple[dict[str, float], list[str]]:
        """The counts, and the sentences since the last reading.

        `decoded` are all answers that engines gave, `answers` those that need not be given again.
        """
        notes, self._notes = self._notes, []
        now, at_work = time.monotonic(), set(self._at.values())
        limits = {name: self._stall_s if name in at_work else _IDLE_S for name in self._seen}
        n_alive = sum(now - seen <= limits[name] for name, seen in self._seen.items())
        counts: dict[str, float] = {**self._counts, "engines": n_alive}
        counts["loading"] = len(self.loading())
        counts["decoded"] = counts.get("answers", 0)
        counts["answers"] = counts.get("all_answers", 0) - sum(self._left.values())
        return counts, notes


class TallyPurse(Purse):
    """The purse that all clients of a run pay from: the tally's."""

    def __init__(self, tally: Any) -> None:
        super().__init__(math.inf)
        self._tally = tally

    def reserve(self, cost: float) -> bool:
        """Set something aside; returns whether there is so much left."""
        import ray

        return bool(ray.get(self._tally.reserve.remote(cost)))

    def settle(self, reserved: float, cost: float) -> None:
        """Pay for something with what was set aside for it."""
        self._tally.settle.remote(reserved, cost)


def tally_actor(cluster: "Cluster") -> Any:
    """A Tally beside the driver, for all workers; one that dies is restarted, and counts from 0."""
    import ray

    from factsweep.pipeline.cluster.ray_cluster import beside_driver

    beside = {"scheduling_strategy": beside_driver()}
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, **beside)(Tally)
    return actor.remote(cluster.stall_s, cluster.max_deaths, one_machine=cluster.address is None)

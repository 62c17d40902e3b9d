"""Packing: how many engines each model of a study gets, and which may begin on the GPUs now free.

The largest work goes first (Graham 1969, "Bounds on multiprocessing timing anomalies": longest
processing time first), and nobody passes an engine that waits for its GPUs. How many engines a
model gets is what a simulation of that very rule ends soonest with. Nothing here knows Ray or asks
a clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from math import ceil, floor, inf
from typing import NamedTuple

# Parts of the time that all GPUs together need at least: how long a model may take, each is tried.
_PARTS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16)
_SIMULATED = 40_000  # jobs, in all that is tried: some seconds
_CLOSE = 1e-9  # fractions of a GPU are binary


@dataclass(frozen=True)
class Job:
    """Work for the engines of one model: `seconds` of one engine, which loads for `loads_s`.

    An engine holds so many `gpus` of one node, or of several if it `spans` them. There are `least`
    engines at least, and at most `most` that have something to do.
    """

    name: str
    gpus: float
    seconds: float
    loads_s: float
    most: int
    least: int = 1
    spans: bool = False

    @property
    def size(self) -> float:
        """The GPU seconds of its work."""
        return self.gpus * self.seconds


class Demand(NamedTuple):
    """Engines of a job that have no GPUs yet."""

    job: Job
    engines: int


class Held(NamedTuple):
    """The GPUs that an engine of a job holds, by node, and since and until when."""

    job: Job
    gpus: Mapping[int, float]
    began: float
    ended: float


Free = Sequence[float]  # GPUs, by node


def in_line(jobs: Sequence[Job], engines: Mapping[str, int]) -> list[Job]:
    """The jobs in the order in which they begin: those first that take longest."""
    return sorted(jobs, key=lambda job: -job.seconds / engines[job.name])


def capacity(job: Job, free: Free) -> int:
    """How many engines of a job have room."""
    if job.spans:
        return floor(sum(free) / job.gpus + _CLOSE)
    return sum(floor(gpus / job.gpus + _CLOSE) for gpus in free)


def may_begin(line: Sequence[Job], free: Free, to_come: Sequence[Demand]) -> bool:
    """Whether the first of a line may begin: all engines before it have room, and its least, too.

    >>> small, large = Job("8b", 1, 90, 1, 4), Job("70b", 4, 90, 1, 1)
    >>> may_begin([large], [8], [Demand(small, 4)]), may_begin([large], [8], [Demand(small, 5)])
    (True, False)
    """
    if not line:
        return False
    room = list(free)
    for job, engines in (*to_come, Demand(line[0], line[0].least)):
        for _ in range(engines):
            if (taken := _taken(job, room)) is None:
                return False
            _take(room, taken)
    return True


def _taken(job: Job, free: Free) -> dict[int, float] | None:
    """The GPUs that the next engine gets by node: of the fullest that has room; null: of none."""
    if job.spans:
        return _spanned(job, free)
    fit = [node for node, gpus in enumerate(free) if gpus + _CLOSE >= job.gpus]
    return {min(fit, key=lambda node: free[node]): job.gpus} if fit else None


def _spanned(job: Job, free: Free) -> dict[int, float] | None:
    taken, lacking = dict[int, float](), job.gpus
    for node, gpus in enumerate(free):
        if (part := min(lacking, floor(gpus + _CLOSE))) > 0:
            taken[node] = part
            lacking -= part
    return taken if lacking <= _CLOSE else None


def _take(free: list[float], taken: Mapping[int, float]) -> None:
    for node, gpus in taken.items():
        free[node] -= gpus


def shares(jobs: Sequence[Job], free: Free) -> dict[str, int]:
    """How many engines each job gets, of jobs that have room for their least.

    More engines answer a model sooner and leave smaller gaps at the end, but each has to load. So
    the fewest are tried and several times that a model may take, and then one engine more or less
    of each job, as long as all ends sooner by that.

    >>> large, small = Job("70b", 4, 1000, 60, most=4), Job("8b", 1, 400, 60, most=16)
    >>> shares([large, small], [8])
    {'70b': 2, '8b': 8}
    """
    search = _Search(jobs, free)
    bound = sum(job.size for job in jobs) / sum(free)
    fewest = {job.name: job.least for job in jobs}
    tried = [fewest, *(_within(jobs, free, bound / part) for part in _PARTS)]
    return min(map(search.improved, sorted(tried, key=search.takes)), key=search.takes)


class _Search:
    """Looks for numbers of engines with which all jobs end sooner, simulation by simulation."""

    def __init__(self, jobs: Sequence[Job], free: Free) -> None:
        self._jobs, self._free = jobs, free
        self._left = _SIMULATED // max(1, len(jobs))

    def takes(self, engines: Mapping[str, int]) -> float:
        self._left -= 1
        return makespan(simulated(self._jobs, engines, self._free))

    def improved(self, engines: dict[str, int]) -> dict[str, int]:
        """What one engine more or less of a job after the other comes to, while all ends sooner."""
        takes, before = self.takes(engines), inf
        while takes < before and self._left > 0:
            before = takes
            for job, more in product(self._jobs, (1, -1)):
                n = _allowed(job, engines[job.name] + more, self._free)
                other = {**engines, job.name: n}
                if other != engines and (found := self.takes(other)) < takes:
                    engines, takes = other, found
        return engines


def _allowed(job: Job, engines: int, free: Free) -> int:
    """The number nearest to so many engines that the job may have."""
    return max(job.least, min(engines, job.most, capacity(job, free)))


def _within(jobs: Sequence[Job], free: Free, seconds: float) -> dict[str, int]:
    """The engines with which each job is answered in so many seconds, as far as there may be."""
    wanted = {job.name: ceil(job.seconds / seconds) if seconds else 1 for job in jobs}
    return {job.name: _allowed(job, wanted[job.name], free) for job in jobs}


def makespan(held: Sequence[Held]) -> float:
    """When the last engine ends."""
    return max((each.ended for each in held), default=0.0)


@dataclass
class _Pool:
    """A job that has begun: the engines that it may still get, and those that it has."""

    job: Job
    to_come: int
    engines: list[tuple[Mapping[int, float], float]] = field(default_factory=list)

    def ends(self) -> float:
        """When all is answered by the engines that are there: each works once it is loaded."""
        ready = sorted(began + self.job.loads_s for _, began in self.engines)
        following = (*ready[1:], inf)
        for n, (total, after) in enumerate(zip(accumulate(ready), following, strict=True), 1):
            if (end := (self.job.seconds + total) / n) <= after:
                return end
        return inf


def simulated(jobs: Sequence[Job], engines: Mapping[str, int], free: Free) -> list[Held]:
    """What would hold which GPUs when, if all engines of a job ended together."""
    line, room, now = in_line(jobs, engines), list(free), 0.0
    pools, held = list[_Pool](), list[Held]()
    while line or pools:
        _place(pools, room, now)
        while may_begin(line, room, [Demand(each.job, each.to_come) for each in pools]):
            job = line.pop(0)
            pools.append(_Pool(job, engines[job.name]))
            _place(pools, room, now)
        assert pools, "a job needs more GPUs than there are"
        done = min(pools, key=_Pool.ends)
        now = done.ends()
        pools.remove(done)
        for gpus, began in done.engines:
            _take(room, {node: -n for node, n in gpus.items()})
            held.append(Held(done.job, gpus, began, now))
    return held


def _place(pools: Sequence[_Pool], room: list[float], now: float) -> None:
    """Give engines that wait their GPUs, in the order of their jobs."""
    for pool in pools:
        while pool.to_come and (taken := _taken(pool.job, room)) is not None:
            _take(room, taken)
            pool.engines.append((taken, now))
            pool.to_come -= 1

"""The pool of engines: Ray actors that get the names of shards, not rows.

An actor reads, decodes and publishes its shards: no answer lives in Ray's object store. The shards
of a dead engine go to the next free one.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util import remove_placement_group

from factsweep.operators.errors import CostLimitError, StoppedError
from factsweep.pipeline.cluster.hardware import most_engines
from factsweep.pipeline.cluster.ray_cluster import placement
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.decoder import Decoder
from factsweep.pipeline.decoding.open_shard import forget_trials
from factsweep.pipeline.decoding.remaining_prompts import (
    Work,
    add_lease,
    begin,
    finish_all,
    list_branch_work,
    sum_costs,
)
from factsweep.pipeline.stages.expand import relation_of
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.object_store import REFUSED

# Shards that an engine holds: one that it answers, and one that waits or is published. A single
# engine holds more, because small sets have shards of fewer prompts than it answers together.
_AT_ONCE, _ALONE = 2, 8
_LOOK_EVERY_S = 1.0
_ROUNDS = 3  # shards of the last relations per engine, if all were as large as the largest


def decode_all(
    plan: Plan,
    tally: Any,
    leases: Mapping[str, Lease],
    ready: Sequence[Any],
    *_after: None,
    spare_engines: "list[_Engine] | None" = None,
) -> None:
    """Decode every missing shard, and publish each manifest after its last shard; a Ray task.

    `ready` are the futures of each setting's prompts, empty if all prompts are complete.
    `spare_engines` are used first, and get the ones for the next run; null: all end.
    """
    queue = Queue(plan, tally, leases, ready)
    if shards := queue.first():
        if plan.run.max_cost is not None:
            ray.get(tally.set_limit.remote(plan.run.max_cost, sum_costs(plan)))
        pool = Pool(
            plan, tally, n_engines(plan.run, queue.estimate_n_shards(shards)), spare_engines
        )
        try:
            for folder in pool.answer(queue, shards):
                finish_all(plan, leases, folder)
        finally:
            pool.close()
        if ray.get(tally.add.remote({})):
            raise StoppedError("stopped; the next run resumes from the published answers.")
    finish_all(plan, leases)


class Decoding:
    """Decodes for one run after the other, and keeps engines between them; a Ray actor."""

    def __init__(self) -> None:
        self._spare_engines: list[_Engine] = []

    def decode_all(self, report: Any, *args: Any) -> None:
        """As `decode_all`; `report` is called for requests that a store refuses."""
        REFUSED.report = report
        decode_all(*args, spare_engines=self._spare_engines)


def n_engines(run: Run, n_shards: int) -> int:
    """The number of engines to start at once: at most one per shard."""
    return min(most_engines(run), max(run.model.replicas.min, n_shards))


class Queue:
    """The shards that lack answers, setting by setting, as soon as their prompts are `ready`."""

    def __init__(
        self, plan: Plan, tally: Any, leases: Mapping[str, Lease], ready: Sequence[Any]
    ) -> None:
        self._plan, self._tally, self._leases, self._ready = plan, tally, leases, list(ready)
        self._is_open = [branch.lacks_answers() for branch in plan.branches]
        self._n_begun = 0

    def first(self) -> list[Work]:
        """The shards of all settings that are ready; waits for the first that lacks answers."""
        shards: list[Work] = []
        while not shards and not self.is_over():
            shards = self._begin_next()
        return shards + self.take_ready()

    def take_ready(self) -> list[Work]:
        """The shards of the settings that have become ready since."""
        shards: list[Work] = []
        while not self.is_over() and (not self.coming() or ray.wait(self.coming(), timeout=0)[0]):
            shards += self._begin_next()
        return shards

    def estimate_n_shards(self, shards: Sequence[Work]) -> int:
        """The number of shards in all if later settings have as many as the largest so far."""
        n = max(
            sum(len(question.shards(branch.prompts)) for _, question in branch.list_questions())
            for branch in self._plan.branches[: self._n_begun]
        )
        return len(shards) + n * sum(self._is_open[self._n_begun :])

    def coming(self) -> list[Any]:
        """The future of the next setting's prompts, if there is one."""
        return self._ready[self._n_begun : self._n_begun + 1]

    def is_over(self) -> bool:
        """Whether no setting is left."""
        return self._n_begun >= len(self._plan.branches)

    def close(self) -> None:
        """Drop the settings that are left."""
        self._n_begun = len(self._plan.branches)

    def _begin_next(self) -> list[Work]:
        """Begin the next setting when it is ready; returns its shards in their order."""
        ray.get(self.coming())
        branch, run = self._plan.branches[self._n_begun], self._plan.run
        self._n_begun += 1
        for artifact in branch.list_outputs():
            if not artifact.is_complete():
                leased = add_lease(artifact, self._leases)
                begin(branch, leased)
                forget_trials(leased)
        shards = [
            replace(shard, artifact=add_lease(shard.artifact, self._leases))
            for shard in list_branch_work(run, branch)
        ]
        # A budget publishes no shard: where none of its prompts is left, no engine is needed.
        items = [
            (shard, n)
            for shard, n in zip(shards, remaining_prompts.count_left(shards), strict=True)
            if n > 0 or shard.question.part is None
        ]
        n_answers = {shard.name: shard.n_answers(n) for shard, n in items}
        self._tally.announce.remote(n_answers, sum(self._is_open[self._n_begun :]))
        relations = [relation_of(shard.shard) for shard, _ in items]
        order = order_of_shards(relations, [n for _, n in items], most_engines(run))
        # An engine answers shards of one artifact together, and drains before those of another.
        folders = [artifact.folder for artifact in branch.list_outputs()]
        return sorted((items[i][0] for i in order), key=lambda s: folders.index(s.artifact.folder))


@dataclass(eq=False)
class _Engine:
    """An actor, the name of its place, and its placement group, if any."""

    place: str
    actor: Any
    group: Any
    options: Mapping[str, Any]
    is_ready: bool = False


class Pool:
    """The engines of a run, and the shards that each holds.

    A dead engine is replaced while shards wait. An engine ends when no shard waits for it, or
    becomes one of the `spare_engines` for the next run.
    """

    def __init__(
        self, plan: Plan, tally: Any, n: int, spare_engines: list[_Engine] | None = None
    ) -> None:
        self._plan, self._tally, self._spare_engines = plan, tally, spare_engines
        self._at_once = _ALONE if n == 1 else _AT_ONCE
        self._engines: list[_Engine] = []
        self._vacant: list[str] = []  # places of dead engines
        self._calls: dict[Any, tuple[_Engine, Work | None]] = {}  # None: the engine is loading
        self._waiting = deque[Work]()
        self._is_broke = False
        self._n_left = Counter[str]()  # unfinished shards, by the folder of their artifact
        places = [f"engine {number}" for number in range(n)]
        for engine in self._take_spare(n):
            self._renew(engine, places.pop(0))
        for place in places:
            self._start(place)

    def answer(self, queue: Queue, shards: Sequence[Work]) -> Iterator[str]:
        """Have all shards answered; yields the folder of an artifact when no shard of it is left.

        Raises:
            CostLimitError: the money is spent.
            FactsweepError: an engine returned this for a shard.
        """
        self._add(shards)
        while True:
            self._hand_out()
            if queue.is_over() and not self._waiting:
                self._end_idle()
                if not self._calls:
                    break
            if futures := [*self._calls, *queue.coming()]:
                for future in ray.wait(futures, timeout=_LOOK_EVERY_S)[0]:
                    yield from self._end(future)
            if ray.get(self._tally.add.remote({})):
                self._waiting.clear()
                queue.close()
            self._add(queue.take_ready())
        if self._is_broke:
            limit, spent = self._plan.run.max_cost, ray.get(self._tally.spent.remote())
            raise CostLimitError(
                f"stopped at {spent:.4g} spent, before max_cost={limit:g} is exceeded; all "
                "answers are kept, and a run with a higher max_cost resumes from them."
            )

    def close(self) -> None:
        """End all engines at once."""
        for engine in list(self._engines):
            ray.kill(engine.actor)
            self._drop(engine)

    def _start(self, place: str) -> None:
        options = placement(self._plan.run)
        actor = ray.remote(max_concurrency=_ALONE, **options)(Decoder).remote(
            self._plan.run, self._plan.weights, self._tally, place
        )
        group = getattr(options["scheduling_strategy"], "placement_group", None)
        engine = _Engine(place, actor, group, options)
        self._engines.append(engine)
        self._calls[actor.__ray_ready__.remote()] = engine, None

    def _take_spare(self, n: int) -> list[_Engine]:
        """At most `n` engines of the run before that have this run's resources; others end."""
        if not self._spare_engines:
            return []
        run, engines = self._plan.run, self._spare_engines.copy()
        self._spare_engines.clear()
        may_fit = run.engine.reloads and run.model.pipeline_parallel == 1
        options = placement(run) if may_fit else None
        fitting = [engine for engine in engines if engine.options == options][:n]
        for engine in engines:
            if engine not in fitting:
                engine.actor.__ray_terminate__.remote()
        return fitting

    def _renew(self, spare: _Engine, place: str) -> None:
        """Have an engine of the run before take the weights of this run."""
        run, weights = self._plan.run, self._plan.weights
        engine = replace(spare, place=place, is_ready=False)
        self._engines.append(engine)
        self._calls[spare.actor.renew.remote(run, weights, self._tally, place)] = engine, None

    def _keep(self, engine: _Engine) -> bool:
        """Keep an idle engine for the next run while a core is left for tasks; else false."""
        reloads = self._plan.run.engine.reloads and engine.is_ready and engine.group is None
        if self._spare_engines is None or not reloads:
            return False
        if len(self._spare_engines) + 1 >= ray.cluster_resources()["CPU"]:
            return False
        self._spare_engines.append(engine)
        return True

    def _add(self, shards: Sequence[Work]) -> None:
        self._waiting.extend(shards)
        self._n_left.update(shard.artifact.folder for shard in shards)

    def _hand_out(self) -> None:
        """Hand shards to the engines that hold the fewest; replace dead engines for the rest."""
        while self._waiting:
            ready = [engine for engine in self._engines if engine.is_ready]
            engine = min(ready, key=self._n_in_hand, default=None)
            if engine is None or self._n_in_hand(engine) == self._at_once:
                break
            shard = self._waiting.popleft()
            self._calls[engine.actor.decode.remote(shard)] = engine, shard
        n_loading = sum(not engine.is_ready for engine in self._engines)
        while self._vacant and n_loading < len(self._waiting):
            self._start(self._vacant.pop())
            n_loading += 1

    def _end(self, future: Any) -> Iterator[str]:
        """Handle the end of a call; yields the folder of its artifact if no shard of it is left."""
        if future not in self._calls:  # it is of a setting, or of an engine that died meanwhile
            return
        engine, shard = self._calls[future]
        try:
            error = ray.get(future)
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as died:
            if getattr(died, "actor_init_failed", False):
                raise
            ray.kill(engine.actor)  # it may be alive, but out of reach
            self._waiting.extendleft(reversed(self._drop(engine)))
            self._vacant.append(engine.place)
            return
        del self._calls[future]
        if shard is None and isinstance(error, str):  # why it cannot take this run's weights
            self._tally.add_note.remote(f"{engine.place} loads in a new process: {error}")
            engine.actor.__ray_terminate__.remote()  # its GPU is free when the process has ended
            self._drop(engine)
            self._start(engine.place)
            return
        if shard is None:
            engine.is_ready = True
            return
        if isinstance(error, StoppedError):
            self._is_broke = True  # other engines finish the requests under way
        elif error is not None:
            raise error
        self._n_left[shard.artifact.folder] -= 1
        if not self._n_left[shard.artifact.folder]:
            yield shard.artifact.folder

    def _end_idle(self) -> None:
        """End engines that hold no shard, and free their resources.

        While shards are decoded, `replicas.min` engines stay, because a busy engine may die.
        """
        n_spare = len(self._engines)
        if any(shard is not None for _, shard in self._calls.values()):
            n_spare -= self._plan.run.model.replicas.min
        idle = [engine for engine in self._engines if not self._n_in_hand(engine)]
        for engine in sorted(idle, key=lambda engine: engine.is_ready)[: max(0, n_spare)]:
            self._drop(engine)
            if not engine.is_ready:
                ray.kill(engine.actor)
            elif not self._keep(engine):
                engine.actor.__ray_terminate__.remote()

    def _n_in_hand(self, engine: _Engine) -> int:
        calls = self._calls.values()
        return sum(holder is engine and shard is not None for holder, shard in calls)

    def _drop(self, engine: _Engine) -> list[Work]:
        """Remove an engine; returns the shards that it held."""
        self._engines.remove(engine)
        futures = [future for future, (holder, _) in self._calls.items() if holder is engine]
        shards = [self._calls.pop(future)[1] for future in futures]
        if engine.group is not None:
            remove_placement_group(engine.group)
        return [shard for shard in shards if shard is not None]


def order_of_shards(relations: Sequence[str], n_left: Sequence[int], engines: int) -> list[int]:
    """The order in which shards are handed out, by their relations and the prompts left in each.

    Relation by relation; of the last relations, enough for all engines, the largest shard first, so
    that engines end at about the same time.

    >>> order_of_shards(["a", "a", "b", "c", "c"], [1, 2, 9, 5, 3], engines=1)
    [2, 3, 4, 1, 0]
    """
    sizes = Counter[str]()
    for relation, n in zip(relations, n_left, strict=True):
        sizes[relation] += n
    n_behind, n_tail = sizes.total(), _ROUNDS * engines * max(n_left, default=0)
    rank: dict[str, int] = {}
    for relation, n in sizes.most_common():
        n_behind -= n
        rank[relation] = len(rank) if n_behind >= n_tail else len(sizes)
    return sorted(range(len(n_left)), key=lambda i: (rank[relations[i]], -n_left[i]))

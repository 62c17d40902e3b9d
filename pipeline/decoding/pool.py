"""The pool of engines: Ray actors that are handed the names of shards, not rows.

An actor reads its shard, decodes it and publishes it: no answer lives in Ray's object store, and
losing a node loses only what was in flight. A shard of an engine that died goes to whoever is free.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import ray
from ray.util import remove_placement_group

from factsweep.operators.errors import StoppedError
from factsweep.pipeline.cluster.hardware import most_engines
from factsweep.pipeline.cluster.ray_cluster import placement
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining
from factsweep.pipeline.decoding.decoder import Decoder
from factsweep.pipeline.decoding.open_shard import forget_trials
from factsweep.pipeline.decoding.remaining import Work, begin, branch_work, finish_all, leased, paid
from factsweep.pipeline.stages.expand import relation_of
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.lease import Lease

# Shards that an engine has: one that it answers, and one that follows, waits or is published. One
# alone takes none from others: small sets have shards of fewer prompts than it answers together.
_AT_ONCE, _ALONE = 2, 4
_LOOK_EVERY_S = 1.0
_ROUNDS = 3  # shards that each engine gets of the last relations, were all as large


def decode_all(
    plan: Plan, tally: Any, leases: Mapping[str, Lease], ready: Sequence[Any], *_after: None
) -> None:
    """Decode every shard that is missing, and publish each manifest when its last one is there.

    A Ray task. `ready` are the futures of each setting's prompts where some are still written;
    where all are there, none.
    """
    queue = Queue(plan, tally, leases, ready)
    if shards := queue.first():
        if plan.run.max_cost is not None:
            ray.get(tally.fund.remote(plan.run.max_cost, paid(plan)))
        pool = Pool(plan, tally, n_engines(plan.run, queue.expected(shards)))
        try:
            for folder in pool.answer(queue, shards):
                finish_all(plan, leases, folder)
        finally:
            pool.close()
        if ray.get(tally.add.remote({})):
            raise StoppedError("stopped; the next run resumes from what is published.")
    finish_all(plan, leases)


def n_engines(run: Run, n_shards: int) -> int:
    """How many engines are asked for, all at once: no more than there are shards."""
    return min(most_engines(run), max(run.model.replicas.min, n_shards))


class Queue:
    """What lacks answers in the settings of a plan, setting by setting, as their prompts are there.

    `ready` are the futures of each setting's prompts; none: all are there.
    """

    def __init__(
        self, plan: Plan, tally: Any, leases: Mapping[str, Lease], ready: Sequence[Any]
    ) -> None:
        self._plan, self._tally, self._leases, self._ready = plan, tally, leases, list(ready)
        self._is_open = [branch.lacks_answers() for branch in plan.branches]
        self._n_begun = 0

    def first(self) -> list[Work]:
        """The shards of the settings that are ready, of one at least that lacks answers."""
        found: list[Work] = []
        while not found and not self.is_over():
            found = self._next()
        return found + self.more()

    def more(self) -> list[Work]:
        """The shards of the settings that have become ready since."""
        found: list[Work] = []
        while not self.is_over() and (not self.coming() or ray.wait(self.coming(), timeout=0)[0]):
            found += self._next()
        return found

    def expected(self, shards: Sequence[Work]) -> int:
        """How many shards there may be in all: others have as many as those begun had."""
        n = max(
            sum(len(question.shards(branch.prompts)) for _, question in branch.asked())
            for branch in self._plan.branches[: self._n_begun]
        )
        return len(shards) + n * sum(self._is_open[self._n_begun :])

    def coming(self) -> list[Any]:
        """The future of the prompts of the next setting, if there is one."""
        return self._ready[self._n_begun : self._n_begun + 1]

    def is_over(self) -> bool:
        """Whether no setting is to come."""
        return self._n_begun >= len(self._plan.branches)

    def close(self) -> None:
        """Leave out the settings that are to come."""
        self._n_begun = len(self._plan.branches)

    def _next(self) -> list[Work]:
        """Begin the next setting when it is ready, and tell what it lacks."""
        ray.get(self.coming())
        branch = self._plan.branches[self._n_begun]
        self._n_begun += 1
        for artifact in branch.answered():
            if not artifact.is_complete():
                begin(branch, leased(artifact, self._leases))
        shards = [
            replace(each, artifact=leased(each.artifact, self._leases))
            for each in branch_work(self._plan.run, branch)
        ]
        left = remaining.left(shards)
        # Of a budget nothing is published: where none of it is left, no engine is needed.
        is_open = [n > 0 or of.question.part is None for of, n in zip(shards, left, strict=True)]
        shards, left = [*compress(shards, is_open)], [*compress(left, is_open)]
        answers = {each.name: each.n_answers(n) for each, n in zip(shards, left, strict=True)}
        self._tally.announce.remote(answers, sum(self._is_open[self._n_begun :]))
        for artifact in {each.artifact.folder: each.artifact for each in shards}.values():
            forget_trials(artifact)
        relations = [relation_of(each.shard) for each in shards]
        order = order_of_shards(relations, left, most_engines(self._plan.run))
        return [shards[i] for i in order]


@dataclass(eq=False)
class _Engine:
    """An actor, the name of its place, and the placement group that it is in, if any."""

    place: str
    actor: Any
    group: Any
    is_ready: bool = False


class Pool:
    """The engines of a run, and the shards that each has in hand.

    An engine that dies is followed by another in its place, if shards wait. One that no shard waits
    for any more ends.
    """

    def __init__(self, plan: Plan, tally: Any, n: int) -> None:
        self._plan, self._tally = plan, tally
        self._at_once = _ALONE if n == 1 else _AT_ONCE
        self._engines: list[_Engine] = []
        self._vacant: list[str] = []  # places whose engine has died
        self._calls: dict[Any, tuple[_Engine, Work | None]] = {}  # null: it is loading
        self._waiting = deque[Work]()
        self._is_broke = False
        self._n_left = Counter[str]()  # shards that are not done, by the folder of their artifact
        for number in range(n):
            self._start(f"engine {number}")

    def answer(self, queue: Queue, shards: Sequence[Work]) -> Iterator[str]:
        """Have all shards answered; yields the folder of each artifact when its last one is done.

        Raises:
            StoppedError: the money is spent.
            FactsweepError: an engine says so of a shard.
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
            self._add(queue.more())
        if self._is_broke:
            limit, spent = self._plan.run.max_cost, ray.get(self._tally.spent.remote())
            raise StoppedError(
                f"stopped at {spent:.4g} spent, before max_cost={limit:g} is exceeded; what is "
                "answered is kept, and a run with a higher max_cost resumes from it."
            )

    def close(self) -> None:
        """End all engines at once."""
        for engine in list(self._engines):
            ray.kill(engine.actor)
            self._drop(engine)

    def _start(self, place: str) -> None:
        where = placement(self._plan.run)
        actor = ray.remote(max_concurrency=self._at_once, **where)(Decoder).remote(
            self._plan.run, self._plan.weights, self._tally, place
        )
        group = getattr(where["scheduling_strategy"], "placement_group", None)
        engine = _Engine(place, actor, group)
        self._engines.append(engine)
        self._calls[actor.__ray_ready__.remote()] = engine, None

    def _add(self, shards: Sequence[Work]) -> None:
        self._waiting.extend(shards)
        self._n_left.update(shard.artifact.folder for shard in shards)

    def _hand_out(self) -> None:
        """Hand shards to the engines that have the fewest; those left are worth new engines."""
        while self._waiting:
            ready = [each for each in self._engines if each.is_ready]
            engine = min(ready, key=self._n_in_hand, default=None)
            if engine is None or self._n_in_hand(engine) == self._at_once:
                break
            shard = self._waiting.popleft()
            self._calls[engine.actor.decode.remote(shard)] = engine, shard
        n_loading = sum(not each.is_ready for each in self._engines)
        while self._vacant and n_loading < len(self._waiting):
            self._start(self._vacant.pop())
            n_loading += 1

    def _end(self, future: Any) -> Iterator[str]:
        """Note what came of a call; yields the folder of its artifact if no other shard is left."""
        if future not in self._calls:  # it is of a setting, or of an engine that has died meanwhile
            return
        engine, shard = self._calls[future]
        try:
            error = ray.get(future)
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as died:
            if getattr(died, "actor_init_failed", False):
                raise
            ray.kill(engine.actor)  # it may only be out of reach
            self._waiting.extendleft(reversed(self._drop(engine)))
            self._vacant.append(engine.place)
            return
        del self._calls[future]
        if shard is None:
            engine.is_ready = True
            return
        if isinstance(error, StoppedError):
            self._is_broke = True  # the others are to end what is under way
        elif error is not None:
            raise error
        self._n_left[shard.artifact.folder] -= 1
        if not self._n_left[shard.artifact.folder]:
            yield shard.artifact.folder

    def _end_idle(self) -> None:
        """End those that have nothing in hand, and free what they hold.

        Of the fewest that are asked for each stays while others are at work, which may die.
        """
        n_spare = len(self._engines)
        if any(shard is not None for _, shard in self._calls.values()):
            n_spare -= self._plan.run.model.replicas.min
        idle = [each for each in self._engines if not self._n_in_hand(each)]
        for engine in sorted(idle, key=lambda each: each.is_ready)[: max(0, n_spare)]:
            self._drop(engine)
            if engine.is_ready:
                engine.actor.__ray_terminate__.remote()
            else:
                ray.kill(engine.actor)

    def _n_in_hand(self, engine: _Engine) -> int:
        return sum(at is engine and shard is not None for at, shard in self._calls.values())

    def _drop(self, engine: _Engine) -> list[Work]:
        """Forget an engine; returns the shards that it had in hand."""
        self._engines.remove(engine)
        futures = [future for future, (at, _) in self._calls.items() if at is engine]
        shards = [self._calls.pop(future)[1] for future in futures]
        if engine.group is not None:
            remove_placement_group(engine.group)
        return [shard for shard in shards if shard is not None]


def order_of_shards(relations: Sequence[str], left: Sequence[int], engines: int) -> list[int]:
    """In what order shards are handed out, given the relation of each and what it lacks.

    Relation by relation, so that each can be measured while others are answered. Of the last ones,
    enough for all engines, the largest first: so that engines end at much the same time.

    >>> order_of_shards(["a", "a", "b", "c", "c"], [1, 2, 9, 5, 3], engines=1)
    [2, 3, 4, 1, 0]
    """
    sizes = Counter[str]()
    for relation, n in zip(relations, left, strict=True):
        sizes[relation] += n
    behind, kept = sizes.total(), _ROUNDS * engines * max(left, default=0)
    place: dict[str, int] = {}
    for relation, n in sizes.most_common():
        behind -= n
        place[relation] = len(place) if behind >= kept else len(sizes)
    return sorted(range(len(left)), key=lambda i: (place[relations[i]], -left[i]))

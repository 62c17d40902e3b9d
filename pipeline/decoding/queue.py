"""The queue: the shards that engines are handed, setting by setting, as their prompts are there."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import ray

from factsweep.pipeline.cluster.hardware import most_engines
from factsweep.pipeline.decoding import remaining, trial
from factsweep.pipeline.decoding.remaining_work import begin, branch_work, leased
from factsweep.pipeline.decoding.work import Work
from factsweep.pipeline.stages.expand import relation_of
from factsweep.pipeline.stages.plan import Branch, Plan
from factsweep.pipeline.storage.lease import Lease

_LOOK_EVERY_S = 1.0
_ROUNDS = 3  # shards that each engine gets of the last relations, were all as large


class Shard(TypedDict):
    """A row that engines are handed: a shard, and how many of its artifact lack answers."""

    work: Work
    of: int


class Queue:
    """What lacks answers in the settings of a plan, in their order.

    `ready` are the futures of each setting's prompts; none: all are there.
    """

    def __init__(
        self, plan: Plan, tally: Any, leases: Mapping[str, Lease], ready: Sequence[Any]
    ) -> None:
        self._plan, self._tally, self._leases, self._ready = plan, tally, leases, list(ready)
        self._is_open = [branch.lacks_answers() for branch in plan.branches]
        self._n_begun = 0

    def first(self) -> list[Shard]:
        """The shards of the settings that are ready, of one at least that lacks answers."""
        found: list[Shard] = []
        while not self._is_begun() and (not found or self._is_ready()):
            found += self._next()
        return found

    def expected(self, shards: Sequence[Shard]) -> int:
        """How many shards there may be in all: others have as many as those begun had."""
        n = max(map(_n_shards, self._plan.branches[: self._n_begun]))
        return len(shards) + n * sum(self._is_open[self._n_begun :])

    def rows(self, shards: list[Shard]) -> ray.data.Dataset:
        """One block per shard, so that whoever is free takes the next one."""
        if self._is_begun():
            return ray.data.from_items(shards, override_num_blocks=len(shards))
        ray.data.DataContext.get_current().target_max_block_size = 1
        told = {"queue": self, "shards": shards}
        one = ray.data.from_items([{"queue": 0}])
        # Where it is lost, all is: it would begin the settings again.
        here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        how = {"num_cpus": 0, "label_selector": here}
        return one.map_batches(_handed, batch_size=None, fn_kwargs=told, **how)

    def rest(self) -> Iterator[Shard]:
        """The shards of the other settings, of each when it is ready; none after a stop."""
        while not self._is_begun():
            while not self._is_ready(_LOOK_EVERY_S):
                if ray.get(self._tally.add.remote({})):
                    return
            yield from self._next()

    def _is_begun(self) -> bool:
        return self._n_begun == len(self._plan.branches)

    def _is_ready(self, within_s: float = 0) -> bool:
        ready = self._ready[self._n_begun : self._n_begun + 1]
        return not ready or bool(ray.wait(ready, timeout=within_s)[0])

    def _next(self) -> list[Shard]:
        """Begin the next setting when it is ready, and tell what it lacks."""
        if self._ready:
            ray.get(self._ready[self._n_begun])
        branch = self._plan.branches[self._n_begun]
        self._n_begun += 1
        for artifact in branch.answered():
            if not artifact.is_complete():
                begin(branch, leased(artifact, self._leases))
        lacking = self._lacking(branch)
        left = {shard_name(item): n_answers(item, n) for item, n in lacking}
        self._tally.announce.remote(left, sum(self._is_open[self._n_begun :]))
        of = Counter(item.artifact.folder for item, _ in lacking)
        for artifact in {item.artifact.folder: item.artifact for item, _ in lacking}.values():
            trial.forget(artifact)
        return [{"work": item, "of": of[item.artifact.folder]} for item, _ in lacking]

    def _lacking(self, branch: Branch) -> list[tuple[Work, int]]:
        """The shards of a setting, and how many prompts of each lack an answer."""
        found = [
            replace(each, artifact=leased(each.artifact, self._leases))
            for each in branch_work(self._plan.run, branch)
        ]
        left = remaining.left(found)
        relations = [relation_of(each.shard) for each in found]
        order = order_of_shards(relations, left, most_engines(self._plan.run))
        return [(found[i], left[i]) for i in order]


def _handed(_: object, queue: Queue, shards: Sequence[Shard]) -> Iterator[dict[str, Any]]:
    """Each shard as a batch of its own."""
    for found in (shards, queue.rest()):
        for shard in found:
            yield {name: [value] for name, value in shard.items()}


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


def shard_name(item: Work) -> str:
    """What messages and counts call a shard."""
    return f"{item.artifact.folder}/{item.open_name}"


def n_answers(item: Work, n_prompts: int) -> int:
    """How many answers so many prompts get."""
    return n_prompts * item.question.task.answers_per_prompt


def _n_shards(branch: Branch) -> int:
    """How many shards of answers a setting has, whoever has answered them."""
    return sum(len(question.shards(branch.prompts)) for _, question in branch.asked())

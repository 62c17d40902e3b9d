"""Ahead: what is made of a setting before its last answer, so that its numbers come soon after.

A relation is matched as soon as all its prompts are answered, and what metrics need of it is kept,
in the memory of one process. It is published when all answers are there, and are those that were
matched.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import FactsweepError
from factsweep.operators.methods.method import Tables
from factsweep.pipeline.execution.plan import Branch
from factsweep.pipeline.execution.tasks import Tasks
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.aggregate import Aggregate
from factsweep.pipeline.stages.expand import shards_of
from factsweep.pipeline.stages.match import Match
from factsweep.pipeline.stages.part import of_same_text, whole
from factsweep.pipeline.stages.stage import Alone
from factsweep.pipeline.storage import shard as shards
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.sealed import Stored, digest
from factsweep.pipeline.storage.shard import Place

_LOOK_EVERY_S = 2.0  # at a listing of each open artifact


@dataclass(frozen=True)
class _Matched:
    """A relation that is matched: of which answers, its shards by table, what metrics need."""

    made_of: str
    shards: Mapping[str, bytes]
    kept: Tables


class _Spent(Alone):
    """What was spent before the rest is made."""

    def timed(self, work: Callable[[], Any]) -> Any:
        """What `work` returns; its time is added."""
        began, busy = time.monotonic(), time.process_time()
        try:
            return work()
        finally:
            self.seconds += time.monotonic() - began
            self.core_seconds += time.process_time() - busy


class Ahead:
    """What is made of one setting while it is answered."""

    def __init__(self, branch: Branch) -> None:
        self._branch = branch
        match, aggregate = (branch.step(each).stage for each in (branch.matched, branch.metrics))
        assert isinstance(match, Match)
        assert isinstance(aggregate, Aggregate)
        self._match, self._aggregate = match, aggregate
        self._of_same_text: dict[str, frozenset[str]] = {}
        self._found: dict[str, _Matched] = {}
        self._matching, self._condensing = _Spent(), _Spent()
        self._is_asked = False  # its prompts are there
        self._has_failed = False

    def look(self, leases: Mapping[str, Lease]) -> bool:
        """Match the relations that are whole by now; publish the setting if that is all of them.

        Returns whether it is published.
        """
        try:
            return not self._has_failed and self._is_published(leases)
        except FactsweepError:
            # The run is not ended for it while engines answer: it is met again, and told then.
            self._has_failed = True
            return False

    def _is_published(self, leases: Mapping[str, Lease]) -> bool:
        written = (self._branch.prompts, self._branch.admitted)
        self._is_asked = self._is_asked or all(each.is_complete() for each in written)
        for relation in self._new() if self._is_asked else ():
            self._found[relation] = self._matched(relation)
        if not all(each.is_complete() for each in self._branch.answered()):
            return False
        self.publish(leases)
        return True

    def publish(self, leases: Mapping[str, Lease]) -> None:
        """Make the matched tables and the metrics, of what is kept as far as it goes."""
        branch = self._branch
        matched, metrics = branch.step(branch.matched), branch.step(branch.metrics)
        lease = leases.get(matched.artifact.folder)
        found = {r: each for r, each in self._found.items() if each.made_of == self._made_of(r)}
        if not matched.artifact.is_complete():
            artifact = matched.opened(lease)
            artifact.begin()  # its recipe first: shards without one cannot be explained
            self._matching.timed(lambda: _put(found, artifact))
        rest = Tasks(matched.check)
        rest.seconds, rest.core_seconds = self._matching.seconds, self._matching.core_seconds
        matched.run(lease, rest)
        kept = {relation: each.kept for relation, each in found.items()}
        measure = replace(metrics, stage=replace(self._aggregate, kept=kept))
        measure.run(leases.get(metrics.artifact.folder), self._condensing)

    def _new(self) -> Iterator[str]:
        """The relations all of whose prompts are answered, and that were not matched before."""
        branch, needed = self._branch, (self._branch.answers, *self._branch.further)
        there = {
            artifact.folder: whole(artifact, branch.prompts, question)
            for artifact, question in branch.asked()
            if artifact in needed
        }
        answered = there[branch.answers.folder]
        for relation in sorted(answered.intersection(*there.values()) - self._found.keys()):
            if self._originals(relation) <= answered:
                yield relation

    @cached_property
    def _facts(self) -> Facts:
        return facts_stage.load(self._branch.facts)

    def _originals(self, relation: str) -> frozenset[str]:
        if relation not in self._of_same_text:
            self._of_same_text[relation] = of_same_text(self._branch.prompts, relation)
        return self._of_same_text[relation]

    def _matched(self, relation: str) -> _Matched:
        made_of = self._made_of(relation)
        written = self._matching.timed(lambda: dict(self._shards(relation)))
        folder = self._branch.matched.folder
        categories, file = self._aggregate.categories, Stored(folder, folder)
        tables = {
            table: shards.rows(content, table, file, categories=categories(table))
            for table, content in written.items()
        }
        condense = partial(self._aggregate.condense, relation, tables, self._facts)
        kept = self._condensing.timed(condense)
        return _Matched(made_of, written, kept)

    def _shards(self, relation: str) -> Iterator[tuple[str, bytes]]:
        for table, rows in self._match.relation(relation, self._facts).items():
            place = Place(table, self._branch.matched.fingerprint, f"{table}/{relation}")
            yield table, shards.encode(rows, place)

    def _made_of(self, relation: str) -> str:
        """A digest of all answers that a relation is matched with."""
        branch = self._branch
        of = [(branch.answers, each) for each in sorted({relation, *self._originals(relation)})]
        of += [(each, relation) for each in branch.further]
        return digest([_contents(artifact, each) for artifact, each in of])


def _put(found: Mapping[str, _Matched], artifact: Artifact) -> None:
    """Publish the shards of relations that are matched already."""
    made = [
        (f"{table}/{relation}.parquet", content)
        for relation, each in found.items()
        for table, content in each.shards.items()
    ]
    artifact.store.each(lambda each: artifact.put_new(*each), made)


def measure(
    branches: Sequence[Branch], leases: Mapping[str, Lease], answered: Sequence[Any]
) -> None:
    """Measure settings while they are answered; a Ray task.

    `answered` is the future of all answers. A setting is published when its own are there.
    """
    import ray

    settings = [Ahead(branch) for branch in branches]
    while settings:
        settings = [each for each in settings if not each.look(leases)]
        done, _ = ray.wait(list(answered), timeout=_LOOK_EVERY_S)
        ray.get(done)  # why there will be no more answers
        for each in settings if done else ():
            each.publish(leases)
        settings = [] if done else settings


def _contents(artifact: Artifact, relation: str) -> list[str]:
    table = artifact.stage
    return artifact.contents(table, shards_of(artifact, table, relation))

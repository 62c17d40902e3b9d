"""What a run that is not done has measured so far: of each setting the relations that are whole.

A relation counts where all its shards are answered, so that its numbers are those of the finished
run. It is matched once; everything is kept in memory, and nothing of it is published.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar
from uuid import uuid4

import polars as pl

from factsweep.operators.methods.ability import GENERATE
from factsweep.operators.wording import count, listed
from factsweep.pipeline.execution.plan import Branch, Plan
from factsweep.pipeline.results import past
from factsweep.pipeline.results.pages import results_page
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.results.record import record
from factsweep.pipeline.results.report import measured, shown
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.aggregate import Aggregate
from factsweep.pipeline.stages.expand import n_prompts
from factsweep.pipeline.stages.match import Match
from factsweep.pipeline.stages.part import joined, of_same_text, part, whole
from factsweep.pipeline.stages.stage import Stage
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.stores.store import Store

There = TypeVar("There")  # what of a setting can be measured


@dataclass(frozen=True)
class SoFar:
    """A page (null: nothing is measured), and a sentence for each setting on how much of it is."""

    page: str | None  # null: nothing is measured
    notes: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)  # beside the page
    headlines: tuple[str, ...] = ()  # said once: those of estimates


@dataclass(frozen=True)
class _Ready:
    """What of a setting can be measured: relations, and what else they were asked, if it is all."""

    relations: tuple[str, ...]
    of: int
    again: Artifact | None
    further: tuple[Artifact, ...]
    lacking: tuple[str, ...]  # what else is asked, and not there for all of these

    @property
    def mark(self) -> str | None:
        """What tables say of a part of the relations; null where it is all of them."""
        n = len(self.relations)
        return None if n == self.of else f"relations={n}/{self.of}"


class Measures(ABC, Generic[There]):
    """Measures a plan that is being answered, again and again; the page says how in these words.

    `said` is what is measured, of shards that are asked whole (`whole_shards`) or in parts. It is
    measured every `every_s` seconds at most, and takes one part in `rest` of the time.
    """

    said: ClassVar[str]
    whole_shards: ClassVar[bool]
    every_s: ClassVar[float]
    rest: ClassVar[int]

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._last: Sequence[There | None] | None = None
        self._made = SoFar(None, ())

    def so_far(self) -> SoFar:
        """What is measured by now; the same as before where nothing was added."""
        there = [self._there(branch) for branch in self._plan.branches]
        if there != self._last:
            self._made, self._last = self._measured(there), there
        return self._made

    @abstractmethod
    def _there(self, branch: Branch) -> There | None:
        """What of a setting can be measured; null: nothing."""

    @abstractmethod
    def _measured(self, there: Sequence[There | None]) -> SoFar:
        """What is measured of that, setting by setting."""


class Measuring(Measures[_Ready]):
    """Measures the relations that are whole; keeps what it has matched."""

    said = "Measured are the relations all of whose prompts are answered."
    whole_shards = True
    every_s = math.inf
    rest = 20

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._store = Store(f"memory://{uuid4().hex}")
        self._originals: dict[tuple[str, str], frozenset[str]] = {}

    def _measured(self, there: Sequence[_Ready | None]) -> SoFar:
        both = list(zip(self._plan.branches, there, strict=True))
        notes = tuple(_note(branch, each) for branch, each in both)
        asked = [(branch, each) for branch, each in both if each and each.relations]
        if not asked:
            return SoFar(None, notes)
        content = json.loads(json.dumps(record(self._plan, {}, {})))
        found = [self._branch(branch, each, content) for branch, each in asked]
        result = measured(found)
        most = max((each.relations for _, each in asked), key=len)  # only these are compared
        fields = [
            branch.metrics.recipe.fields
            for branch, (_, each) in zip(found, asked, strict=True)
            if each.relations == most
        ]
        names = [(each["setting"], each["variant"]) for each in fields]
        answers = {a: t for a, t in result.answers.items() if (a.setting, a.variant) in names}
        result = replace(result, answers=answers)
        report = shown(found[0], result)
        return SoFar(results_page(found, result, report, partial=True).decode(), notes)

    def _there(self, branch: Branch) -> _Ready | None:
        """What of a setting is whole; null where its prompts are not."""
        if not all(each.is_complete() for each in (branch.facts, branch.prompts, branch.admitted)):
            return None
        optional = self._plan.run.method.ask.ability == GENERATE
        there_of = {
            artifact.folder: whole(artifact, branch.prompts, question)
            for artifact, question in branch.asked()
        }
        there = there_of[branch.answers.folder]
        if not optional:  # an encoder's priors, say: its answers cannot be matched without
            there = there.intersection(*(there_of[each.folder] for each in branch.further))
        relations = {each for each in there if self._of_same_text(branch, each) <= there}
        again, further = branch.again, branch.further
        if again is not None and not relations <= there_of[again.folder]:
            again = None
        if not all(relations <= there_of[each.folder] for each in further):
            further = ()
        usable = (branch.answers, again, *further)
        lacking = sorted({each.stage for each in branch.answered() if each not in usable})
        of = len(n_prompts(branch.prompts))
        return _Ready(tuple(sorted(relations)), of, again, further, tuple(lacking))

    def _of_same_text(self, branch: Branch, relation: str) -> frozenset[str]:
        """The relations whose prompts have the same text as some of this one: they were asked."""
        key = branch.prompts.folder, relation
        if key not in self._originals:
            self._originals[key] = of_same_text(branch.prompts, relation)
        return self._originals[key]

    def _branch(self, branch: Branch, ready: _Ready, content: past.Record) -> PastBranch:
        """A setting as a past run would have it, if its relations were all that it was asked."""
        of = ready.relations
        asked = [part(each, of) for each in (branch.prompts, branch.admitted, branch.answers)]
        again = None if ready.again is None else part(ready.again, of)
        further = [part(each, of) for each in ready.further]
        matched = {each: self._matched(branch, each, ready.further) for each in of}
        together = joined(next(iter(matched.values())), matched)
        metrics = self._metrics(branch, ready, again, together)
        found = [branch.facts, *asked, *filter(None, [again]), *further, together, metrics]
        title = " ".join(filter(None, (branch.title, ready.mark)))
        return past.setting(self._plan.run.name, content, title, found)

    def _facts(self, every: Artifact, relations: set[str]) -> Artifact:
        fields = {**every.recipe.fields, "part": sorted(relations)}
        found = Artifact(self._store, Recipe("facts", every.recipe.version, fields))
        if not found.is_complete():
            tables = facts_stage.tables(facts_stage.load(every))
            for table, rows in tables.items():
                found.write(table, "all", rows.filter(pl.col("relation_id").is_in(relations)))
            found.finish(list(tables))
        return found

    def _matched(self, branch: Branch, relation: str, further: Sequence[Artifact]) -> Artifact:
        originals = {relation, *self._of_same_text(branch, relation)}
        of_all = branch.step(branch.matched).stage
        assert isinstance(of_all, Match)
        stage = replace(
            of_all,
            facts=self._facts(branch.facts, {relation}),
            prompts=part(branch.prompts, {relation}),
            answers=part(branch.answers, originals),
            further=tuple(part(each, {relation}) for each in further),
        )
        return self._made_by(stage, stage.recipe)

    def _metrics(
        self, branch: Branch, ready: _Ready, again: Artifact | None, matched: Artifact
    ) -> Artifact:
        """The metrics over the relations; those of a part of them say so in their variant."""
        of, of_all = ready.relations, branch.step(branch.metrics).stage
        assert isinstance(of_all, Aggregate)
        stage = replace(
            of_all,
            n_sampled=of_all.n_sampled if ready.further else 0,
            facts=self._facts(branch.facts, set(of)),
            prompts=part(branch.prompts, of),
            answers=part(branch.answers, of),
            again=again,
            matched=matched,
        )
        recipe = stage.recipe  # from which the tables take their names
        if ready.mark is not None:
            variant = ",".join(filter(None, (ready.mark, recipe.fields["variant"])))
            recipe = replace(recipe, fields={**recipe.fields, "variant": variant})
        return self._made_by(stage, recipe)

    def _made_by(self, stage: Stage, recipe: Recipe) -> Artifact:
        found = Artifact(self._store, recipe)
        if not found.is_complete():
            stage.make(found)
        return found


def _note(branch: Branch, ready: _Ready | None) -> str:
    if ready is None:
        return f"{branch.title}: its prompts are not written yet."
    lacking = f", without {listed(ready.lacking)}" if ready.lacking and ready.relations else ""
    n = f"{len(ready.relations):,} of {count(ready.of, 'relation')}"
    return f"{branch.title}: {n}{lacking}."

"""Parts of a setting that is being answered: its whole relations, and views of these alone."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from factsweep.pipeline.stages.asking import trial
from factsweep.pipeline.stages.asking.question import Question
from factsweep.pipeline.stages.expand import prompts_of, relation_of
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.manifest import Manifest
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.shard import Counts


def whole(artifact: Artifact, prompts: Artifact, question: Question) -> set[str]:
    """The relations all of whose shards of a question are answered and settled."""
    wanted = Counter(map(relation_of, prompts.shards(question.source)))
    done = set(artifact.shards(question.table))
    if not artifact.was_complete:
        done -= trial.begun(artifact, question.table)
    have = Counter(map(relation_of, done))
    # A question that is not about a relation's prompts lacks none of them.
    every = set(map(relation_of, prompts.shards("prompts")))
    return {relation for relation in every if have[relation] >= wanted[relation]}


def of_same_text(prompts: Artifact, relation: str) -> frozenset[str]:
    """The relations whose prompts have the same text as some of this one: they were asked."""
    same = prompts_of(prompts, relation, ["same_as"])["same_as"]
    return frozenset(map(relation_of, same.drop_nulls()))


@dataclass(frozen=True)
class Part(Artifact):
    """The shards of some relations, each from the artifact that `sources` names; only read.

    Its recipe is its own: what is made of a part is told from what is made of the whole.
    """

    sources: Mapping[str, Artifact] = field(default_factory=dict, compare=False)

    def is_complete(self) -> bool:
        """Nothing is added to a part."""
        return True

    def manifest(self) -> Manifest:
        """One that lists nothing: what is made of a part is pinned to nothing."""
        return Manifest(self.folder, "", {}, {}, {})

    def shards(self, table: str) -> list[str]:
        """The shards of the part."""
        return sorted(shard for shard, _ in self._found(table))

    def rows(self, table: str) -> dict[str, int]:
        """The rows of each shard, from its footer."""
        return {shard: each.footer(table, shard).rows for shard, each in self._found(table)}

    def counts(self, table: str, most: int | None = None) -> dict[str, Counts]:
        """The counts of each shard, from its footer; of at most so many."""
        found = list(self._found(table))[:most]
        return {shard: each.footer(table, shard).counts for shard, each in found}

    def read(
        self,
        table: str,
        shard: str,
        columns: Sequence[str] | None = None,
        categories: Sequence[str] = (),
    ) -> pl.DataFrame:
        """A shard, checked as that of its artifact."""
        return self.sources[relation_of(shard)].read(table, shard, columns, categories)

    def _found(self, table: str) -> Iterator[tuple[str, Artifact]]:
        for whole in {each.folder: each for each in self.sources.values()}.values():
            for shard in whole.shards(table):
                if self.sources.get(relation_of(shard)) == whole:
                    yield shard, whole


def part(whole: Artifact, relations: Collection[str]) -> Part:
    """What is published of an artifact for some relations."""
    return joined(whole, dict.fromkeys(relations, whole))


def joined(named: Artifact, sources: Mapping[str, Artifact]) -> Part:
    """The relations that each artifact of a stage has, together, under the name of one of them."""
    recipe = named.recipe
    of = {relation: each.fingerprint for relation, each in sorted(sources.items())}
    own = Recipe(recipe.stage, recipe.version, {**recipe.fields, "part": of}, recipe.inputs)
    return Part(named.store, own, sources=sources)

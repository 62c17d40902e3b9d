"""A part of artifacts, which may still be open, as if that were all of them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from factsweep.pipeline.stages.expand import relation_of
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.manifest import Manifest
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.shard import Counts


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

    def read(self, table: str, shard: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """A shard, checked as that of its artifact."""
        return self.sources[relation_of(shard)].read(table, shard, columns)

    def _found(self, table: str) -> Iterator[tuple[str, Artifact]]:
        wholes = {each.folder: each for each in self.sources.values()}
        for folder, whole in wholes.items():
            for shard in whole.shards(table):
                source = self.sources.get(relation_of(shard))
                if source is not None and source.folder == folder:
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

"""choose: prompts × a budget → the prompts that are asked of them.

chosen/<as of prompts>   the prompts of the sample, and which prompt's answer is theirs
needed/<as of prompts>   the prompts that an engine is asked for it, and in which block of it
crossed/all              what the full run asks of each pair
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from operators.errors import InputError
from operators.sampling import choice
from pipeline.config.budget import Budget
from pipeline.stages.expand import relation_of
from pipeline.storage.artifact import Artifact
from pipeline.storage.recipe import Recipe

VERSION = 2
TABLES = ("chosen", "needed", "crossed")
_PLACE = ["pair_id", "template_id", "subject_index"]


class _Chosen(NamedTuple):
    """What is asked of each relation, by name, and what the full run asks (table `crossed`)."""

    asked: Mapping[str, pl.DataFrame]
    crossed: pl.DataFrame


@dataclass(frozen=True)
class Choose:
    """Chooses the prompts of a budget: some of each pair's, or all those of some pairs."""

    prompts: Artifact
    budget: Budget
    seed: int
    whole_pairs: bool = False

    @property
    def recipe(self) -> Recipe:
        """The prompts, the budget and the seed."""
        fields = {
            "share": self.budget.share,
            "n_prompts": self.budget.n_prompts,
            "seed": self.seed,
            "whole_pairs": self.whole_pairs,
        }
        return Recipe("chosen", VERSION, fields, {"prompts": self.prompts.fingerprint})

    def make(self, artifact: Artifact) -> None:
        """Publish the prompts of the sample, shard by shard of the prompts."""
        artifact.begin()
        shards = self.prompts.shards("prompts")
        asked, crossed = self._of_pairs() if self.whole_pairs else self._of_prompts()
        place = ["pair_id"] if self.whole_pairs else _PLACE
        sources = []
        for shard in shards:
            rows = self.prompts.read("prompts", shard)
            source = pl.coalesce("same_as", "prompt_id").alias("source_id")
            found = rows.join(asked[relation_of(shard)], on=place, maintain_order="left")
            found = found.select("prompt_id", *_PLACE, source, "block")
            artifact.write("chosen", shard, found)
            sources.append(found.select("block", prompt_id="source_id"))
        needed = pl.concat(sources).group_by("prompt_id").agg(pl.min("block"))
        for shard in shards:
            rows = self.prompts.read("prompts", shard).select("prompt_id")
            here = rows.join(needed, on="prompt_id", maintain_order="left")
            artifact.write("needed", shard, here)
        artifact.write("crossed", "all", crossed)
        artifact.finish(TABLES, made_of=[self.prompts])

    def _of_prompts(self) -> _Chosen:
        relations = {name: self._relation(name) for name in self._relations()}
        asked = choice.chosen(
            relations, share=self.budget.share, n_prompts=self.budget.n_prompts, seed=self.seed
        )
        pairs = [
            each.pairs.with_columns(
                relation_id=pl.lit(name), n_templates=pl.lit(len(each.templates), pl.Int64)
            )
            for name, each in relations.items()
        ]
        return _Chosen(asked, pl.concat(pairs))

    def _of_pairs(self) -> _Chosen:
        n = pl.len().cast(pl.Int64).alias("n")
        prompts = {
            name: self._places(name).group_by("pair_id").agg(n).sort("pair_id")
            for name in self._relations()
        }
        asked = choice.whole_pairs(
            prompts, share=self.budget.share, n_prompts=self.budget.n_prompts, seed=self.seed
        )
        one = pl.lit(1, pl.Int64).alias("n_templates")
        pairs = [
            each.select("pair_id", one, relation_id=pl.lit(name), n_names="n")
            for name, each in prompts.items()
        ]
        return _Chosen(asked, pl.concat(pairs))

    def _relations(self) -> list[str]:
        return sorted(set(map(relation_of, self.prompts.shards("prompts"))))

    def _places(self, name: str) -> pl.DataFrame:
        shards = [s for s in self.prompts.shards("prompts") if relation_of(s) == name]
        return pl.concat(self.prompts.read("prompts", each).select(_PLACE) for each in shards)

    def _relation(self, name: str) -> choice.Relation:
        found = choice.relation(self._places(name))
        if not found.is_crossed:
            raise InputError(
                f"{name} does not ask each fact in each template under each of its names, so no "
                "part of it is balanced; leave out budget=."
            )
        return found

"""choose: prompts × a budget → the prompts that are asked of them.

chosen/<as of prompts>   the prompts of the sample, and which prompt's answer is theirs
needed/<as of prompts>   the prompts that an engine is asked for it
crossed/all              what the full run asks of each pair
"""

from dataclasses import dataclass

import polars as pl

from operators.errors import InputError
from operators.sampling import choice
from pipeline.config.budget import Budget
from pipeline.stages.expand import relation_of
from pipeline.storage.artifact import Artifact
from pipeline.storage.recipe import Recipe

VERSION = 1
TABLES = ("chosen", "needed", "crossed")
_PLACE = ["pair_id", "template_id", "subject_index"]


@dataclass(frozen=True)
class Choose:
    """Chooses the prompts of a budget."""

    prompts: Artifact
    budget: Budget
    seed: int

    @property
    def recipe(self) -> Recipe:
        """The prompts, the budget and the seed."""
        fields = {
            "share": self.budget.share,
            "n_prompts": self.budget.n_prompts,
            "seed": self.seed,
        }
        return Recipe("chosen", VERSION, fields, {"prompts": self.prompts.fingerprint})

    def make(self, artifact: Artifact) -> None:
        """Publish the prompts of the sample, shard by shard of the prompts."""
        artifact.begin()
        shards = self.prompts.shards("prompts")
        relations = {name: self._relation(name) for name in sorted(set(map(relation_of, shards)))}
        asked = choice.chosen(
            relations, share=self.budget.share, n_prompts=self.budget.n_prompts, seed=self.seed
        )
        sources = []
        for shard in shards:
            rows = self.prompts.read("prompts", shard)
            source = pl.coalesce("same_as", "prompt_id").alias("source_id")
            found = rows.join(
                asked[relation_of(shard)], on=_PLACE, how="semi", maintain_order="left"
            )
            found = found.select("prompt_id", *_PLACE, source)
            artifact.write("chosen", shard, found)
            sources.append(found.select(prompt_id="source_id"))
        needed = pl.concat(sources).unique()
        for shard in shards:
            rows = self.prompts.read("prompts", shard).select("prompt_id")
            here = rows.join(needed, on="prompt_id", how="semi", maintain_order="left")
            artifact.write("needed", shard, here)
        pairs = [
            each.pairs.with_columns(
                relation_id=pl.lit(name), n_templates=pl.lit(len(each.templates), pl.Int64)
            )
            for name, each in relations.items()
        ]
        artifact.write("crossed", "all", pl.concat(pairs))
        artifact.finish(TABLES, made_of=[self.prompts])

    def _relation(self, name: str) -> choice.Relation:
        shards = [s for s in self.prompts.shards("prompts") if relation_of(s) == name]
        rows = pl.concat(self.prompts.read("prompts", each).select(_PLACE) for each in shards)
        found = choice.relation(rows)
        if not found.is_crossed:
            raise InputError(
                f"{name} does not ask each fact in each template under each of its names, so no "
                "part of it is balanced; leave out budget=."
            )
        return found

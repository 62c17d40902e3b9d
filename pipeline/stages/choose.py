"""choose: prompts × a budget → the prompts that are asked of them.

chosen/<as of prompts>   the prompts of the sample, and which prompt's answer is theirs
needed/<as of prompts>   the prompts that an engine is asked for it
crossed/all              what the full run asks of each pair
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.estimates import choice
from factsweep.operators.estimates.choice import Relation
from factsweep.pipeline.config.budget import Budget
from factsweep.pipeline.stages.expand import prompts_of, relation_of
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe

VERSION = 3
TABLES = ("chosen", "needed", "crossed")
_PLACE = ["pair_id", "template_id", "subject_index"]

Known = Relation | pl.DataFrame  # of a relation: what is crossed, or of each pair its prompts


class Chosen(NamedTuple):
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
        drawn = {"share": self.budget.share, "n_prompts": self.budget.n_prompts, "seed": self.seed}
        fields = {**drawn, "whole_pairs": self.whole_pairs}
        return Recipe("chosen", VERSION, fields, {"prompts": self.prompts.fingerprint})

    def make(self, artifact: Artifact) -> None:
        """Publish the prompts of the sample, shard by shard of the prompts."""
        artifact.begin()
        shards = self.prompts.shards("prompts")
        names = sorted(set(map(relation_of, shards)))
        known = {name: self.known(name, prompts_of(self.prompts, name, _PLACE)) for name in names}
        asked, crossed = self.chosen(known)
        sources = []
        for shard in shards:
            found = self.of(asked[relation_of(shard)], self.prompts.read("prompts", shard))
            artifact.write("chosen", shard, found)
            sources.append(found.select(prompt_id="source_id"))
        needed = pl.concat(sources)
        for shard in shards:
            rows = self.prompts.read("prompts", shard).select("prompt_id")
            here = rows.join(needed, on="prompt_id", how="semi", maintain_order="left")
            artifact.write("needed", shard, here)
        artifact.write("crossed", "all", crossed)
        artifact.finish(TABLES, made_of=[self.prompts])

    def known(self, name: str, prompts: pl.DataFrame) -> Known:
        """What the choice has to know of all prompts of a relation.

        Raises:
            InputError: they are no crossed design.
        """
        if self.whole_pairs:
            return prompts.group_by("pair_id").agg(n=pl.len().cast(pl.Int64)).sort("pair_id")
        found = choice.relation(prompts)
        if not found.is_crossed:
            raise InputError(
                f"{name} does not ask each fact in each template under each of its names, so no "
                "part of it is balanced; leave out budget=."
            )
        return found

    def chosen(self, known: Mapping[str, Known]) -> Chosen:
        """What is asked of each relation; `known` says of each what there is to ask."""
        if not self.whole_pairs:
            relations = {name: each for name, each in known.items() if isinstance(each, Relation)}
            return Chosen(
                choice.chosen(relations, self.budget.of, seed=self.seed), choice.crossed(relations)
            )
        pairs = {name: each for name, each in known.items() if isinstance(each, pl.DataFrame)}
        one = pl.lit(1, pl.Int64).alias("n_templates")
        crossed = [
            each.select("pair_id", one, relation_id=pl.lit(name), n_names="n")
            for name, each in pairs.items()
        ]
        return Chosen(choice.whole_pairs(pairs, self.budget.of, seed=self.seed), pl.concat(crossed))

    def of(self, asked: pl.DataFrame, prompts: pl.DataFrame) -> pl.DataFrame:
        """Those of some prompts of a relation that are asked, and whose answer is theirs."""
        place = ["pair_id"] if self.whole_pairs else _PLACE
        source = pl.coalesce("same_as", "prompt_id").alias("source_id")
        found = prompts.join(asked, on=place, how="semi", maintain_order="left")
        return found.select("prompt_id", *_PLACE, source)

"""choose: prompts × a budget → the sampled prompts.

chosen/<shard of prompts>   the sampled prompts, and the prompt whose answer each shares
needed/<shard of prompts>   the prompts that an engine is asked for them
crossed/all                 the design of each pair in the full run
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
from factsweep.pipeline.storage.artifact import Artifact, Recipe

VERSION = 3
TABLES = ("chosen", "needed", "crossed")
_PLACE = ["pair_id", "template_id", "subject_index"]

# The design of a relation: a crossed one, or the number of prompts of each pair.
Design = Relation | pl.DataFrame


class ChosenSamples(NamedTuple):
    """The sample of each relation, by name, and the design of the full run (table `crossed`)."""

    samples: Mapping[str, pl.DataFrame]
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
        sample = {"share": self.budget.share, "n_prompts": self.budget.n_prompts, "seed": self.seed}
        fields = {**sample, "whole_pairs": self.whole_pairs}
        return Recipe("chosen", VERSION, fields, {"prompts": self.prompts.fingerprint})

    def make(self, artifact: Artifact) -> None:
        """Publish the sampled prompts, in the shards of the prompts."""
        artifact.begin()
        shards = self.prompts.shards("prompts")
        names = sorted(set(map(relation_of, shards)))
        samples, crossed = self.choose_samples(
            {name: self.design(name, prompts_of(self.prompts, name, _PLACE)) for name in names}
        )
        sources = []
        for shard in shards:
            rows = self.of(samples[relation_of(shard)], self.prompts.read("prompts", shard))
            artifact.write("chosen", shard, rows)
            sources.append(rows.select(prompt_id="source_id"))
        needed = pl.concat(sources)
        for shard in shards:
            rows = self.prompts.read("prompts", shard).select("prompt_id")
            rows = rows.join(needed, on="prompt_id", how="semi", maintain_order="left")
            artifact.write("needed", shard, rows)
        artifact.write("crossed", "all", crossed)
        artifact.finish(TABLES, made_of=[self.prompts])

    def design(self, name: str, prompts: pl.DataFrame) -> Design:
        """The design of a relation, from all its prompts.

        Raises:
            InputError: they are no crossed design.
        """
        if self.whole_pairs:
            return prompts.group_by("pair_id").agg(n=pl.len().cast(pl.Int64)).sort("pair_id")
        relation = choice.relation(prompts)
        if not relation.is_crossed:
            raise InputError(
                f"{name} does not ask each fact in each template under each of its names, so no "
                "part of it is balanced; leave out budget=."
            )
        return relation

    def choose_samples(self, designs: Mapping[str, Design]) -> ChosenSamples:
        """The sample of each relation, given the designs."""
        if not self.whole_pairs:
            relations = {name: rows for name, rows in designs.items() if isinstance(rows, Relation)}
            samples = choice.choose_prompts(relations, self.budget.of, seed=self.seed)
            return ChosenSamples(samples, choice.tabulate_designs(relations))
        pairs = {name: rows for name, rows in designs.items() if isinstance(rows, pl.DataFrame)}
        n_templates = pl.lit(1, pl.Int64).alias("n_templates")
        crossed = [
            rows.select("pair_id", n_templates, relation_id=pl.lit(name), n_names="n")
            for name, rows in pairs.items()
        ]
        samples = choice.choose_pairs(pairs, self.budget.of, seed=self.seed)
        return ChosenSamples(samples, pl.concat(crossed))

    def of(self, sample: pl.DataFrame, prompts: pl.DataFrame) -> pl.DataFrame:
        """The sampled rows of a relation's prompts, with the prompt whose answer each shares."""
        place = ["pair_id"] if self.whole_pairs else _PLACE
        source = pl.coalesce("same_as", "prompt_id").alias("source_id")
        rows = prompts.join(sample, on=place, how="semi", maintain_order="left")
        return rows.select("prompt_id", *_PLACE, source)

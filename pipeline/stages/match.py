"""match: answers × facts → what is right of them, a few relations at a time."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.object_types import typed_objects
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.ability import GENERATE
from factsweep.operators.methods.method import Matcher, Tables
from factsweep.operators.schemas import empty
from factsweep.pipeline.config.benchmark import Matching
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine.software import versions
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import (
    by_relation,
    n_prompts,
    prompts_of,
    relation_of,
    shards_of,
)
from factsweep.pipeline.stages.stage import Shared, Sharing
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe

VERSION = 4
_ASKED = ("prompt_id", "pair_id", "template_id", "subject_index", "same_as")


@dataclass(frozen=True)
class Match(Shared):
    """Compares answers with facts; `further` is what was asked in addition to the answers."""

    method: str
    facts: Artifact
    prompts: Artifact
    answers: Artifact
    further: tuple[Artifact, ...]
    matching: Matching
    weights: Weights
    n_sampled: int

    @property
    def recipe(self) -> Recipe:
        """The answers, and how they are matched."""
        measure, language = METHODS[self.method].measure, self.matching.values_in
        read = () if language is None else ("babel", "pint")
        fields = {
            "method": self.method,
            "version": measure.version,
            "pipeline": self.matching.pipeline,
            "versions": {**measure.versions(self.matching.pipeline), **versions("polars", *read)},
            "n_prompts": self.n_sampled,
        }
        if language is not None:
            fields["values"] = [language, self.matching.tolerance]
        blocks = {f"block {n}": block.fingerprint for n, block in enumerate(self.further)}
        inputs = {self.answers.stage: self.answers.fingerprint, **blocks}
        return Recipe("matched", VERSION, fields, inputs)

    def make_shared(self, artifact: Artifact, sharing: Sharing) -> None:
        """Publish the matched tables of each relation."""
        artifact.begin()
        tables, relations = METHODS[self.method].measure.matched, self.prompts.shards("ranked")
        there = set[str].intersection(*(set(artifact.published(table)) for table in tables))
        missing = [each for each in relations if each not in there]
        if missing:
            sizes = n_prompts(self.prompts)
            sharing(partial(self._match, artifact), {each: sizes[each] for each in missing})
        made_of = (self.facts, self.prompts, self.answers, *self.further)
        artifact.finish(tables, expected_shards=dict.fromkeys(tables, relations), made_of=made_of)

    def _match(self, artifact: Artifact, relations: Sequence[str]) -> None:
        def matcher() -> Matcher:
            facts = facts_stage.load(self.facts)
            mine = facts.pairs.filter(pl.col("relation_id").is_in(relations))
            return self.matcher(replace(facts, pairs=mine))

        with ThreadPoolExecutor(1) as beside_reading:
            match = beside_reading.submit(matcher)

            def publish(relation_id: str) -> None:
                read = self._read(relation_id)
                for table, rows in match.result()(*read).items():
                    artifact.write(table, relation_id, rows)

            by_relation(publish, relations)

    def _read(self, relation_id: str) -> tuple[pl.DataFrame, Tables]:
        """The answers to a relation's prompts, and its rows of what else the method asks for."""
        asked = prompts_of(self.prompts, relation_id, _ASKED)
        ability = METHODS[self.method].ask.ability
        columns = ("prompt_id", ability.column) if ability == GENERATE else None
        answers = _answers(asked, self.answers, relation_id, columns)
        return answers, beside(self.method, self.further, relation_id)

    def matcher(self, facts: Facts) -> Matcher:
        """What compares answers with some facts, as the recipe says."""
        tokenizer = partial(models.tokenizer, self.weights)
        if (language := self.matching.values_in) is not None:
            typed = typed_objects(facts, language, self.matching.tolerance)
            facts = replace(facts, typed=typed)
        return METHODS[self.method].measure.matcher(facts, self.matching.pipeline, tokenizer)


def beside(
    method: str, further: Sequence[Artifact], relation_id: str
) -> Mapping[str, pl.DataFrame]:
    """A relation's rows of each table that a method may ask for in addition to the answers."""
    tables = METHODS[method].ask.ability.further
    return {table: _rows(table, further, relation_id) for table in tables}


def _answers(
    asked: pl.DataFrame, given: Artifact, relation_id: str, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """The relation's prompts that have an answer, with it; `asked` are all of them."""
    asked, own = asked.with_row_index("row"), _of_relation(given, relation_id, columns)
    first, repeated = asked.filter(pl.col("same_as").is_null()), asked.drop_nulls("same_as")
    if first["prompt_id"].equals(own["prompt_id"]):  # as we publish them: nothing is looked for
        mine = pl.concat([first, own.drop("prompt_id")], how="horizontal")
    else:
        mine = asked.join(own, on="prompt_id")
    # Another system may have answered repeats by themselves: then its own answer counts, once.
    without = repeated.join(mine.select("row"), on="row", how="anti")
    wanted = without.select(prompt_id="same_as").unique()
    others = set(map(relation_of, wanted["prompt_id"])) - {relation_id}
    read = (_of_relation(given, each, columns) for each in sorted(others))
    elsewhere = (rows.join(wanted, on="prompt_id", how="semi") for rows in read)
    texts = pl.concat([own, *elsewhere]).rename({"prompt_id": "same_as"})
    again = without.join(texts, on="same_as").select(mine.columns)
    rows = pl.concat([mine, again]).sort("row").drop("row", "same_as")
    return rows.with_columns(relation_id=pl.lit(relation_id))


def _of_relation(
    given: Artifact, relation_id: str, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """All answers to the prompts of a relation."""
    shards = shards_of(given, given.stage, relation_id)
    return pl.concat(given.each(given.stage, columns, shards))


def _rows(table: str, artifacts: Sequence[Artifact], relation_id: str) -> pl.DataFrame:
    """What artifacts say of a relation; of sampled answers one row each (prompt_id, text)."""
    mine = [each for each in artifacts if each.stage == table]
    found = (each.each(table, shards=shards_of(each, table, relation_id)) for each in mine)
    rows = pl.concat([empty(table), *chain.from_iterable(found)])
    if "block" not in rows.columns:
        return rows
    return rows.select("prompt_id", text="texts").explode("text").drop_nulls("text")

"""match: answers × facts → the right answers, a few relations at a time."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.object_types import typed_objects
from factsweep.operators.errors import InputError
from factsweep.operators.matching.verdicts import VERDICTS
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import GENERATE, Matcher
from factsweep.operators.schemas import empty
from factsweep.pipeline.config.run import Matching
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
from factsweep.pipeline.stages.step import ShardedStage, Sharing
from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.lookup import open_artifact
from factsweep.pipeline.storage.store import Store

VERSION = 4
_ASKED = ("prompt_id", "pair_id", "template_id", "subject_index", "same_as")


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of a judge: the artifact `matched` of a run that asked it."""

    judge: str
    matched: Artifact

    @classmethod
    def of_metrics(cls, store: Store, folder: str) -> "Verdicts":
        """The verdicts behind an artifact of metrics, as `Run.judges` names it.

        Raises:
            InputError: there is none, or it is of no judge.
        """
        metrics = open_artifact(store, folder)
        fingerprint = metrics.recipe.inputs.get("matched")
        matched = open_artifact(store, f"matched/{fingerprint}")
        if matched.recipe.fields.get("method") != "judge":
            raise InputError(f"judges names {folder}, which is of no judge; `factsweep judge` is.")
        return cls(str(metrics.recipe.fields["model"]), matched)

    def read(self) -> pl.DataFrame:
        """The replies: judged_id, state (null: none of the three words)."""
        return self.matched.read_all("verdicts").select(VERDICTS.names())

    @property
    def answers(self) -> str:
        """The folder of the judge's replies."""
        return f"{GENERATE.answers}/{self.matched.recipe.inputs[GENERATE.answers]}"


def collect_verdicts(judges: Sequence[Verdicts]) -> dict[str, pl.DataFrame]:
    """The verdicts by judge (VERDICTS): of several on the same answer the first that is one."""
    tables_by_judge: dict[str, list[pl.DataFrame]] = {}
    for verdicts in judges:
        tables_by_judge.setdefault(verdicts.judge, []).append(verdicts.read().drop_nulls())
    return {
        judge: pl.concat(tables).unique("judged_id", keep="first", maintain_order=True)
        for judge, tables in tables_by_judge.items()
    }


@dataclass(frozen=True)
class Match(ShardedStage):
    """Compares answers with facts; `extra_outputs` are samples, or answers to empty prompts.

    `repeated_answers` have log-probabilities; null where the method reads none.
    """

    method: str
    facts: Artifact
    prompts: Artifact
    answers: Artifact
    extra_outputs: tuple[Artifact, ...]
    repeated_answers: Artifact | None
    matching: Matching
    weights: Weights
    n_sampled: int
    judges: tuple[Verdicts, ...] = ()

    @property
    def recipe(self) -> Recipe:
        """The answers, and the way of matching."""
        measure, language = METHODS[self.method].measure, self.matching.values_in
        libraries = versions("polars", *(() if language is None else ("babel", "pint")))
        fields = {
            "method": self.method,
            "version": measure.version,
            "pipeline": self.matching.pipeline,
            "versions": {**measure.versions(self.matching.pipeline), **libraries},
            "n_prompts": self.n_sampled,
        }
        if language is not None:
            fields["values"] = [language, self.matching.tolerance]
        if measure.reads_refusals:
            fields["refusals"] = list(self.matching.refusals)
        blocks = {f"block {n}": block.fingerprint for n, block in enumerate(self.extra_outputs)}
        repeated = self.repeated_answers
        canary = {} if repeated is None else {repeated.stage: repeated.fingerprint}
        verdicts = {
            f"judge {number} {verdicts.judge}": verdicts.matched.fingerprint
            for number, verdicts in enumerate(self.judges)
        }
        inputs = {self.answers.stage: self.answers.fingerprint, **blocks, **canary, **verdicts}
        return Recipe("matched", VERSION, fields, inputs)

    def make_shared(self, artifact: Artifact, sharing: Sharing) -> None:
        """Publish the matched tables of each relation."""
        artifact.begin()
        tables, relations = METHODS[self.method].measure.matched, self.prompts.shards("ranked")
        published = set[str].intersection(
            *(set(artifact.list_published(table)) for table in tables)
        )
        missing = [relation_id for relation_id in relations if relation_id not in published]
        if missing:
            sizes = n_prompts(self.prompts)
            parts = {relation_id: sizes[relation_id] for relation_id in missing}
            sharing(partial(self._match_relations, artifact), parts)
        verdicts = (verdicts.matched for verdicts in self.judges)
        made_of = (self.facts, self.prompts, self.answers, *self._further_artifacts, *verdicts)
        artifact.finish(tables, expected_shards=dict.fromkeys(tables, relations), made_of=made_of)

    @property
    def _further_artifacts(self) -> tuple[Artifact, ...]:
        return (*self.extra_outputs, *filter(None, (self.repeated_answers,)))

    def _match_relations(self, artifact: Artifact, relations: Sequence[str]) -> None:
        ability = METHODS[self.method].ask.ability
        columns = ("prompt_id", ability.column) if ability == GENERATE else None

        def load_matcher() -> Matcher:
            facts = facts_stage.load(self.facts)
            pairs = facts.pairs.filter(pl.col("relation_id").is_in(relations))
            return self.matcher(replace(facts, pairs=pairs))

        with ThreadPoolExecutor(1) as loader:  # while the first answers are read
            matcher = loader.submit(load_matcher)

            def publish(relation_id: str) -> None:
                prompts = prompts_of(self.prompts, relation_id, _ASKED)
                answers = answers_of(prompts, self.answers, relation_id, columns)
                further_tables = read_extra_tables(
                    self.method, self._further_artifacts, relation_id
                )
                for table, rows in matcher.result()(answers, further_tables).items():
                    artifact.write(table, relation_id, rows)

            by_relation(publish, relations)

    def matcher(self, facts: Facts) -> Matcher:
        """The function that compares answers with some facts, as the recipe says."""
        tokenizer = partial(models.tokenizer, self.weights)
        if (language := self.matching.values_in) is not None:
            typed = typed_objects(facts, language, self.matching.tolerance)
            facts = replace(facts, typed=typed)
        verdicts = collect_verdicts(self.judges)
        facts = replace(facts, refusals=self.matching.refusals, verdicts=verdicts)
        return METHODS[self.method].measure.matcher(facts, self.matching.pipeline, tokenizer)


def read_extra_tables(
    method: str, artifacts: Sequence[Artifact], relation_id: str
) -> Mapping[str, pl.DataFrame]:
    """A relation's rows of each further table of a method; one row per sampled answer."""
    rows_by_table = {}
    ability = METHODS[method].ask.ability
    for table in filter(None, (*ability.extra_tables, ability.repeat_table)):
        parts = [empty(table)]
        for artifact in artifacts:
            if artifact.stage == table:
                parts += artifact.each(table, shards=shards_of(artifact, table, relation_id))
        rows = pl.concat(parts)
        if "block" in rows.columns:  # samples: prompt_id, text
            rows = rows.select("prompt_id", text="texts").explode("text").drop_nulls("text")
        rows_by_table[table] = rows
    return rows_by_table


def answers_of(
    prompts: pl.DataFrame, answered: Artifact, relation_id: str, columns: Sequence[str] | None
) -> pl.DataFrame:
    """The relation's prompts that have an answer, with it."""

    def read_answers(name: str) -> pl.DataFrame:
        shards = shards_of(answered, answered.stage, name)
        return pl.concat(answered.each(answered.stage, columns, shards))

    prompts, answers = prompts.with_row_index("row"), read_answers(relation_id)
    first, repeated = prompts.filter(pl.col("same_as").is_null()), prompts.drop_nulls("same_as")
    if first["prompt_id"].equals(answers["prompt_id"]):  # in our own order: no join is needed
        rows = pl.concat([first, answers.drop("prompt_id")], how="horizontal")
    else:
        rows = prompts.join(answers, on="prompt_id")
    # Another system may have answered a repeated text itself: then its own answer counts, once.
    missing = repeated.join(rows.select("row"), on="row", how="anti")
    source_ids = missing.select(prompt_id="same_as").unique()
    other_relations = set(map(relation_of, source_ids["prompt_id"])) - {relation_id}
    tables = map(read_answers, sorted(other_relations))
    texts = [answers, *(rows.join(source_ids, on="prompt_id", how="semi") for rows in tables)]
    shared = missing.join(pl.concat(texts).rename({"prompt_id": "same_as"}), on="same_as")
    rows = pl.concat([rows, shared.select(rows.columns)]).sort("row").drop("row", "same_as")
    return rows.with_columns(relation_id=pl.lit(relation_id))

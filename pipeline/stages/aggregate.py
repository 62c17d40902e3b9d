"""aggregate: matched answers → the metrics of a setting, and the tables of its figures.

One process reads a few relations at a time, and keeps only the input of their metrics.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import GENERATE, Evidence, PromptSetting, Tables
from factsweep.operators.metrics.noise import cut_share
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.schemas import empty
from factsweep.pipeline.machine.software import versions
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import by_relation, n_prompts, prompts_of, relation_of
from factsweep.pipeline.stages.match import answers_of
from factsweep.pipeline.storage.artifact import Artifact, Recipe

VERSION = 3
_RANK = ("pair_id", "calibration_rank")


@dataclass(frozen=True)
class Aggregate:
    """Measures a setting from its matched answers, and its noise from the repeated ones."""

    method: str
    model: str
    benchmark: str
    setting: PromptSetting
    options: Any
    seed: int
    n_sampled: int
    facts: Artifact
    prompts: Artifact
    answers: Artifact
    repeated_answers: Artifact | None
    matched: Artifact

    @property
    def recipe(self) -> Recipe:
        """The matched and repeated answers, the options and seed, and the names in the table."""
        fields = {
            **asdict(self.options),
            "version": METHODS[self.method].measure.version,
            "software": versions("numpy", "polars", "scipy"),
            "seed": self.seed,
            "model": self.model,
            "benchmark": self.benchmark,
            "setting": self.setting.name,
            "variant": self.setting.variant,
        }
        inputs = {"matched": self.matched.fingerprint}
        if self.repeated_answers is not None:
            inputs[self.repeated_answers.stage] = self.repeated_answers.fingerprint
        return Recipe("metrics", VERSION, fields, inputs)

    @single_threaded_blas()
    def make(self, artifact: Artifact) -> None:
        """Publish the metrics and the tables that go with them, each as one shard."""
        artifact.begin()
        measure = METHODS[self.method].measure
        source = self.repeated_answers
        repeated = None if source is None else source.read_all(source.stage)
        evidence = self._collect_evidence(repeated)
        with ThreadPoolExecutor(1) as reader:  # the answers are read while metrics are computed
            answer_metrics = reader.submit(lambda: list(self._answer_metrics(repeated)))
            tables = dict(measure.compute(evidence))
        metrics = [tables["metrics"], *answer_metrics.result()]
        tables["metrics"] = pl.concat(metrics, how="diagonal")
        for table, rows in tables.items():
            artifact.write(table, "all", _add_names(rows, artifact.recipe))
        inputs = (self.facts, self.prompts, self.answers, self.matched, source)
        artifact.finish(measure.measured, made_of=list(filter(None, inputs)))

    def _answer_metrics(self, repeated: pl.DataFrame | None) -> Iterator[pl.DataFrame]:
        """The metrics of unmatched answers (cut ones, changed ones), which are read once."""
        ability, answers = METHODS[self.method].ask.ability, self.answers
        if ability != GENERATE and repeated is None:
            return
        first, ends = [empty(answers.stage)], list[pl.DataFrame]()
        sought = None if repeated is None or repeated.is_empty() else repeated
        columns = ["finish_reason"] if sought is None and ability == GENERATE else None
        tables = answers.each(answers.stage, columns)
        for shard, rows in zip(answers.shards(answers.stage), tables, strict=True):
            if sought is not None:
                first.append(rows.join(sought, on="prompt_id", how="semi"))
            if ability == GENERATE:
                ends.append(rows.select("finish_reason", relation_id=pl.lit(relation_of(shard))))
        if ability == GENERATE:
            yield cut_share(pl.concat(ends))
        if repeated is not None:
            yield ability.differ(pl.concat(first), repeated)

    def _collect_evidence(self, repeated: pl.DataFrame | None) -> Evidence:
        measure = METHODS[self.method].measure
        facts = facts_stage.load(self.facts)
        expected = n_prompts(self.prompts)
        if measure.left_out is not None:  # a prompt that the model cannot answer has not failed
            expected -= Counter(self.matched.rows(measure.left_out))
        return Evidence(
            facts=facts,
            setting=self.setting,
            tables=self._condense_tables(facts),
            n_failed=_count_missing(expected, Counter(self.matched.rows(measure.answers))),
            n_failed_samples=self._count_failed_samples(),
            repeated_answers=repeated,
            options=self.options,
            seed=self.seed,
        )

    def _condense_tables(self, facts: Facts) -> Tables:
        measure, stored = METHODS[self.method].measure, empty(self.answers.stage)
        names = {name for metric in measure.metrics for name in metric.columns}
        columns = sorted(names & {*stored.columns} - {*empty(measure.answers).columns})

        def condense(relation_id: str) -> Tables:
            categories = {measure.answers: measure.categories}
            matched = {
                table: self.matched.read(table, relation_id, None, categories.get(table, ()))
                for table in measure.matched
            }
            if columns:
                prompts = prompts_of(self.prompts, relation_id, ("prompt_id", "same_as"))
                answers = answers_of(prompts, self.answers, relation_id, ("prompt_id", *columns))
                answers = answers.select("prompt_id", *columns)
                matched[measure.answers] = matched[measure.answers].join(
                    answers, on="prompt_id", how="left", maintain_order="left"
                )
            ranked = self.prompts.read("ranked", relation_id, ("prompt_id",))
            return measure.condense(matched, ranked, facts, self.options)

        no_rows = {table: empty(table) for table in measure.matched}
        no_rows[measure.answers] = no_rows[measure.answers].hstack(stored.select(columns))
        no_prompts = empty("ranked").select("prompt_id")
        parts = [measure.condense(no_rows, no_prompts, facts, self.options)]
        parts += by_relation(condense, self.matched.shards(measure.answers))
        return {table: pl.concat([part[table] for part in parts]) for table in parts[0]}

    def _count_failed_samples(self) -> pl.DataFrame | None:
        sampled_table = METHODS[self.method].measure.sampled
        if sampled_table is None or not self.n_sampled:
            return None
        expected = Counter[str]()
        for rows in self.prompts.each("ranked", _RANK):
            sampled = rows.filter(pl.col("calibration_rank") < self.n_sampled)
            expected.update(map(relation_of, sampled["pair_id"]))
        return _count_missing(expected, Counter(self.matched.rows(sampled_table)))


def _add_names(rows: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """The rows with model, benchmark, setting and variant, to which their own is appended."""
    names = [pl.lit(recipe.fields[name]).alias(name) for name in ("model", "benchmark")]
    own_variant = ["variant"] if "variant" in rows.columns else []
    # A method that measures several settings at once names them itself.
    setting = [pl.col("setting")] if "setting" in rows.columns else []
    names.append(pl.coalesce(*setting, pl.lit(recipe.fields["setting"])).alias("setting"))
    run_variant = pl.lit(recipe.fields["variant"], pl.String)
    variant = pl.concat_str(run_variant, *own_variant, separator=",", ignore_nulls=True)
    return rows.with_columns(*names, variant=pl.when(variant != "").then(variant))


def _count_missing(expected: Counter[str], answered: Counter[str]) -> pl.DataFrame:
    """relation_id, n_failed: the number of expected prompts without an answer."""
    rows = [(relation, n - answered[relation]) for relation, n in expected.items()]
    return pl.DataFrame(rows, {"relation_id": pl.String, "n_failed": pl.Int64}, orient="row")

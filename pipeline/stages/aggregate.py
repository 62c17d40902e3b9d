"""aggregate: matched answers → the metrics of a setting, and what its figures show.

One process makes it, a few relations at a time, and keeps of each what its metrics need.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.ability import GENERATE
from factsweep.operators.methods.method import Asked, Evidence, Tables
from factsweep.operators.metrics.noise import cut_share
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.schemas import empty
from factsweep.pipeline.machine.software import versions
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import by_relation, n_prompts, relation_of
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe

VERSION = 3
_RANK = ("pair_id", "calibration_rank")


@dataclass(frozen=True)
class Aggregate:
    """Measures a setting from its matched answers; `again` are the answers made a second time."""

    method: str
    model: str
    benchmark: str
    setting: Asked
    options: Any
    seed: int
    n_sampled: int
    facts: Artifact
    prompts: Artifact
    answers: Artifact
    again: Artifact | None
    matched: Artifact

    @property
    def recipe(self) -> Recipe:
        """The matched answers, those made again, what is drawn, and the names in the table."""
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
        if self.again is not None:
            inputs[self.again.stage] = self.again.fingerprint
        return Recipe("metrics", VERSION, fields, inputs)

    @single_threaded_blas()
    def make(self, artifact: Artifact) -> None:
        """Publish the metrics and the tables that go with them, each as one shard."""
        artifact.begin()
        method = METHODS[self.method]
        again = None if self.again is None else self.again.read_all(self.again.stage)
        evidence = self._evidence(again)
        with ThreadPoolExecutor(1) as beside:  # they are read while others are measured
            of_asking = beside.submit(lambda: list(self._of_asking(again)))
            measured = dict(method.measure.compute(evidence))
        found = [measured["metrics"], *of_asking.result()]
        measured["metrics"] = pl.concat(found, how="diagonal")
        for table, rows in measured.items():
            artifact.write(table, "all", _named(rows, artifact.recipe))
        read = (self.facts, self.prompts, self.answers, self.matched, self.again)
        made_of = [each for each in read if each is not None]
        artifact.finish(method.measure.measured, made_of=made_of)

    def _of_asking(self, again: pl.DataFrame | None) -> Iterator[pl.DataFrame]:
        """What the answers themselves say, each of which is read once."""
        ability, answers = METHODS[self.method].ask.ability, self.answers
        if ability != GENERATE and again is None:
            return
        first, ends = [empty(answers.stage)], list[pl.DataFrame]()
        wanted = None if again is None or again.is_empty() else again
        columns = ["finish_reason"] if wanted is None and ability == GENERATE else None
        read = answers.each(answers.stage, columns)
        for shard, rows in zip(answers.shards(answers.stage), read, strict=True):
            if wanted is not None:
                first.append(rows.join(wanted, on="prompt_id", how="semi"))
            if ability == GENERATE:
                ends.append(rows.select("finish_reason", relation_id=pl.lit(relation_of(shard))))
        if ability == GENERATE:
            yield cut_share(pl.concat(ends))
        if again is not None:
            yield ability.differ(pl.concat(first), again)

    def _evidence(self, again: pl.DataFrame | None) -> Evidence:
        measure = METHODS[self.method].measure
        facts = facts_stage.load(self.facts)
        expected = n_prompts(self.prompts)
        if measure.left_out is not None:  # what the model cannot say has not failed
            expected -= self._n_matched(measure.left_out)
        return Evidence(
            facts=facts,
            setting=self.setting,
            tables=self._tables(facts),
            n_failed=_missing(expected, self._n_matched(measure.answers)),
            n_failed_samples=self._failed_samples(),
            again=again,
            options=self.options,
            seed=self.seed,
        )

    def _tables(self, facts: Facts) -> Tables:
        measure = METHODS[self.method].measure
        nothing = {table: empty(table) for table in measure.matched}
        none = empty("ranked").select("prompt_id")
        condensed = partial(self._condensed, facts=facts)
        known = by_relation(condensed, self.matched.shards(measure.answers))
        found = [measure.condense(nothing, none, facts, self.options), *known]
        return {table: pl.concat([each[table] for each in found]) for table in found[0]}

    def _condensed(self, relation_id: str, facts: Facts) -> Tables:
        measure = METHODS[self.method].measure
        categories = {measure.answers: measure.categories}
        matched = {
            table: self.matched.read(table, relation_id, categories=categories.get(table, ()))
            for table in measure.matched
        }
        again = self.prompts.read("ranked", relation_id, ("prompt_id",))
        return measure.condense(matched, again, facts, self.options)

    def _n_matched(self, table: str) -> Counter[str]:
        return Counter(self.matched.rows(table))

    def _failed_samples(self) -> pl.DataFrame | None:
        calibration = METHODS[self.method].measure.calibration
        if calibration is None or not self.n_sampled:
            return None
        expected = Counter[str]()
        for rows in self.prompts.each("ranked", _RANK):
            sampled = rows.filter(pl.col("calibration_rank") < self.n_sampled)
            expected.update(map(relation_of, sampled["pair_id"]))
        return _missing(expected, self._n_matched(calibration))


def _named(rows: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """The rows with model, benchmark, setting and variant; their own variant stands last."""
    names = [pl.lit(recipe.fields[name]).alias(name) for name in ("model", "benchmark")]
    own = ["variant"] if "variant" in rows.columns else []
    # A method that measures several settings at once names them itself.
    setting = [pl.col("setting")] if "setting" in rows.columns else []
    names.append(pl.coalesce(*setting, pl.lit(recipe.fields["setting"])).alias("setting"))
    asked = pl.lit(recipe.fields["variant"], pl.String)
    variant = pl.concat_str(asked, *own, separator=",", ignore_nulls=True)
    return rows.with_columns(*names, variant=pl.when(variant != "").then(variant))


def _missing(expected: Counter[str], there: Counter[str]) -> pl.DataFrame:
    """relation_id, n_failed: how many prompts should be there and are not."""
    rows = [(relation, n - there[relation]) for relation, n in expected.items()]
    return pl.DataFrame(rows, {"relation_id": pl.String, "n_failed": pl.Int64}, orient="row")

"""aggregate: matched answers → the metrics of a setting, and what its figures show."""

from collections import Counter
from dataclasses import asdict
from functools import reduce

import polars as pl

from operators.methods import METHODS
from operators.methods.method import Asked, Evidence
from operators.schemas import empty
from pipeline.config.settings import Metrics
from pipeline.stages import facts as facts_stage
from pipeline.stages.expand import relation_of
from pipeline.storage.artifact import Artifact, Recipe

VERSION = 2


def recipe(
    matched: Recipe,
    canary: Recipe | None,
    metrics: Metrics,
    model: str,
    benchmark: str,
    setting: Asked,
    seed: int,
) -> Recipe:
    """The matched answers, the canary's, what is drawn, and the names that stand in the table."""
    fields = {
        **asdict(metrics),
        "seed": seed,
        "model": model,
        "benchmark": benchmark,
        "setting": setting.name,
        "variant": setting.variant,
    }
    inputs = {"matched": matched.fingerprint}
    if canary is not None:
        inputs["canary"] = canary.fingerprint
    return Recipe("metrics", VERSION, fields, inputs)


def make(
    artifact: Artifact,
    setting: Asked,
    facts: Artifact,
    prompts: Artifact,
    matched: Artifact,
    n_sampled: int,
    greedy: Artifact | None = None,
    canary: Artifact | None = None,
) -> None:
    """Publish the metrics and what stands beside them, each table as one shard."""
    artifact.begin()
    method = METHODS[matched.recipe.fields["method"]]
    again = None if canary is None else canary.read_all(canary.stage)
    evidence = _evidence(artifact, setting, facts, prompts, matched, n_sampled, again)
    measured = dict(method.measure(evidence))
    if greedy is not None and again is not None:
        noise = method.twice(_first(greedy, again), again)
        measured["metrics"] = pl.concat([measured["metrics"], noise], how="diagonal")
    for table, rows in measured.items():
        artifact.write(table, "all", _named(rows, artifact.recipe))
    artifact.finish(method.measured)


def _evidence(
    artifact: Artifact,
    setting: Asked,
    facts: Artifact,
    prompts: Artifact,
    matched: Artifact,
    n_sampled: int,
    canary: pl.DataFrame | None,
) -> Evidence:
    fields = artifact.recipe.fields
    method = METHODS[matched.recipe.fields["method"]]
    tables = {table: matched.read_all(table) for table in method.matched}
    expected = Counter[str]()
    for shard, rows in prompts.rows("prompts").items():
        expected[relation_of(shard)] += rows
    sampled = (_sampled(shard, n_sampled) for shard in prompts.each("ranked"))
    answers, *calibration = tables.values()
    if "errors" in tables:  # what the model cannot say: left out, not failed
        expected -= Counter(map(relation_of, tables["errors"]["prompt_id"]))
    n_failed_samples = (
        _missing(reduce(Counter.__add__, sampled, Counter[str]()), calibration[0])
        if n_sampled
        else None
    )
    return Evidence(
        facts=facts_stage.load(facts),
        setting=setting,
        tables=tables,
        n_failed=_missing(expected, answers),
        n_failed_samples=n_failed_samples,
        canary=canary,
        analyses=tuple(fields["analyses"]),
        seed=int(fields["seed"]),
        n_draws=int(fields["n_draws"]),
        n_rounds=int(fields["n_rounds"]),
        n_bins=int(fields["n_bins"]),
    )


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


def _first(greedy: Artifact, again: pl.DataFrame) -> pl.DataFrame:
    """The first answers to the prompts that were answered twice."""
    found = [each.join(again, on="prompt_id", how="semi") for each in greedy.each(greedy.stage)]
    return pl.concat([empty(greedy.stage), *found])


def _sampled(ranked: pl.DataFrame, n_sampled: int) -> Counter[str]:
    chosen = ranked.filter(pl.col("calibration_rank") < n_sampled)
    return Counter(relation_of(pair_id) for pair_id in chosen["pair_id"])


def _missing(expected: Counter[str], found: pl.DataFrame) -> pl.DataFrame:
    """relation_id, n_failed: how many prompts should be there and are not."""
    counts = pl.DataFrame(
        {"relation_id": list(expected), "expected": list(expected.values())},
        schema={"relation_id": pl.String, "expected": pl.Int64},
    )
    present = found.group_by("relation_id").agg(n=pl.len())
    counts = counts.join(present, on="relation_id", how="left")
    return counts.select(
        "relation_id", n_failed=pl.col("expected") - pl.col("n").fill_null(0).cast(pl.Int64)
    )

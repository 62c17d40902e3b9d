"""aggregate: matched answers → the metrics of a setting, and the bins of its calibration figure."""

from collections import Counter
from dataclasses import asdict
from functools import reduce

import polars as pl

from operators.metrics.belief import belief
from operators.metrics.calibration import bins
from operators.metrics.flip_rate import flip_rate
from operators.prompts.setting import Setting
from operators.schemas import empty
from pipeline.artifact import Artifact, Recipe
from pipeline.settings import Metrics
from pipeline.stages.expand import relation_of

VERSION = 1
TABLES = ("metrics", "bins")


def recipe(
    matched: Recipe,
    canary: Recipe | None,
    metrics: Metrics,
    model: str,
    benchmark: str,
    setting: Setting,
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
    matched: Artifact,
    prompts: Artifact,
    n_sampled: int,
    greedy: Artifact | None = None,
    canary: Artifact | None = None,
) -> None:
    """Publish the metrics and the bins, each as one shard."""
    fields = artifact.recipe.fields
    artifact.begin()
    answers = matched.read_all("answers")
    calibration = matched.read_all("calibration")
    expected = Counter[str]()
    for shard, rows in prompts.rows("prompts").items():
        expected[relation_of(shard)] += rows
    ranked = prompts.each("ranked")
    sampled = reduce(
        Counter.__add__,
        (_sampled(shard, n_sampled) for shard in ranked),
        Counter[str](),
    )
    table = belief(
        answers,
        calibration if n_sampled else None,
        _missing(expected, answers),
        seed=int(fields["seed"]),
        n_draws=int(fields["n_draws"]),
        n_rounds=int(fields["n_rounds"]),
        n_bins=int(fields["n_bins"]),
        n_failed_samples=_missing(sampled, calibration),
    )
    if greedy is not None and canary is not None:
        table = pl.concat([table, _flips(greedy, canary)])
    names = {name: pl.lit(fields[name], pl.String) for name in ("model", "benchmark", "setting")}
    variant = pl.concat_str(
        pl.lit(fields["variant"], pl.String), "variant", separator=",", ignore_nulls=True
    )
    table = table.with_columns(variant=pl.when(variant != "").then(variant), **names)
    artifact.write("metrics", "all", table)
    artifact.write("bins", "all", bins(calibration, int(fields["n_bins"])))
    artifact.finish(TABLES)


def _flips(greedy: Artifact, canary: Artifact) -> pl.DataFrame:
    """The row of the flip rate, over the prompts that were decoded twice."""
    again = canary.read_all("canary")
    first = pl.concat(
        [
            empty("generations"),
            *(each.join(again, on="prompt_id", how="semi") for each in greedy.each("generations")),
        ]
    )
    return flip_rate(first, again)


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

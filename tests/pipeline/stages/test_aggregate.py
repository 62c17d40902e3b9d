"""aggregate: the metrics of a setting, counted over what should be there."""

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.methods import METHODS
from factsweep.operators.metrics.shared.rows import Metric
from factsweep.operators.schemas import SCHEMAS, empty
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.aggregate import Aggregate
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.store import Store
from tests.pipeline.here import complete, overwrite

Settings = Callable[..., Run]
Compute = Callable[..., Plan]
OF_ENCODERS = {"bias_level", "objects_left_out"}
CORE = {metric.name for metric in METHODS["belief"].measure.metrics} - OF_ENCODERS
ANALYSES = {
    *(f"template_spread_{part}" for part in ("min", "mean", "max")),
    *("subject_consist", "template_consist", "subject_acc_min", "subject_acc_max"),
    *("template_acc_min", "template_acc_max"),
    *("manual_rank", "inner_group_consist", "inter_group_consist"),
}


def test_aggregate_has_every_core_number_over_all_and_by_relation(done: Plan) -> None:
    metrics = done.branches[0].metrics.read_all("metrics")
    overall = metrics.filter(pl.col("slice").is_null())
    assert set(overall["metric"]) == CORE | ANALYSES
    assert set(metrics.drop_nulls("slice")["slice"]) > {f"tokens={n}" for n in range(1, 6)}
    by_relation = metrics.filter(metric="acc_at_1").drop_nulls("slice")
    assert by_relation["slice"].to_list() == ["relation=P30", "relation=P36"]
    assert by_relation["n"].to_list() == [36, 36]


def test_aggregate_accuracy_is_the_mean_over_pairs_of_the_mean_over_prompts(done: Plan) -> None:
    (branch,) = done.branches
    metrics = branch.metrics.read_all("metrics").filter(metric="acc_at_1")
    answers = branch.matched.read_all("answers")
    expected = answers.group_by("pair_id").agg(pl.col("correct").mean())["correct"].mean()
    value, n, n_failed = (
        metrics.filter(pl.col("slice").is_null()).select("value", "n", "n_failed").row(0)
    )
    assert value == pytest.approx(expected)
    assert (n, n_failed) == (72, 0)


def test_aggregate_metric_gets_stored_columns_of_each_answer_by_their_names(
    done: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    (branch,) = done.branches
    stage, method = branch.step(branch.metrics).stage, METHODS["belief"]
    assert isinstance(stage, Aggregate)
    metric = Metric("of_text", columns=("text", "correct"))
    measure = replace(
        method.measure,
        metrics=(*method.measure.metrics, metric),
        condense=lambda tables, *_: {"answers": tables["answers"].select("prompt_id", "text")},
    )
    other = {**METHODS, "belief": replace(method, measure=measure)}
    monkeypatch.setattr("factsweep.pipeline.stages.aggregate.METHODS", other)
    answers = stage._condense_tables(facts_stage.load(stage.facts))["answers"]
    stored = branch.answers.read_all("generations").select("prompt_id", "text")
    assert answers.height == 72
    unique = answers.join(stored, on="prompt_id", suffix="_stored")
    assert unique.height == stored.height
    assert unique["text"].equals(unique["text_stored"], check_names=False)
    assert answers["text"].null_count() == 0  # of repeated prompts, too


def test_aggregate_names_model_benchmark_setting_and_variant(
    small_settings: Settings, compute_here: Compute
) -> None:
    overrides = ("prompt.scope=prompt", "prompt.shots=2", "benchmark.name=small")
    run = small_settings(*overrides, "metrics.n_draws=5", "metrics.n_rounds=2")
    metrics = compute_here(run).branches[0].metrics.read_all("metrics")
    assert metrics.select("model", "benchmark", "setting").unique().rows() == [
        ("tiny", "small", "2-template")
    ]
    assert set(metrics["variant"]) > {"scope=prompt", "scope=prompt,draw=pair"}
    assert metrics["variant"].str.starts_with("scope=prompt").all()


def test_aggregate_lost_answers_count_as_failed(
    finished: Plan, small_settings: Settings, compute_here: Compute
) -> None:
    (branch,) = finished.branches
    for artifact in (branch.matched, branch.metrics):
        artifact.store.drop(f"{artifact.folder}/manifest.json")
    shard = branch.answers.shards("generations")[0]
    answers = branch.answers.read("generations", shard)
    overwrite(branch.answers, "generations", shard, answers[2:])
    complete(finished, branch.answers)
    metrics = compute_here(small_settings()).branches[0].metrics.read_all("metrics")
    row = metrics.filter(pl.col("slice").is_null()).filter(metric="acc_at_1")
    assert row.select("n", "n_failed").row(0) == (70, 2)


def test_aggregate_tables_have_their_columns_and_bins_all_sampled_prompts(done: Plan) -> None:
    metrics, bins = map(done.branches[0].metrics.read_all, ("metrics", "bins"))
    assert metrics.columns == SCHEMAS["metrics"].names
    assert bins.columns == SCHEMAS["bins"].names
    of_samples = bins.filter(pl.col("variant").is_null())
    assert of_samples["n"].sum() == 8
    assert of_samples["mean_confidence"].is_between(0, 1).all()


def test_aggregate_again_gives_the_same_table(
    finished: Plan, small_settings: Settings, compute_here: Compute
) -> None:
    metrics = finished.branches[0].metrics
    first_metrics = metrics.read_all("metrics")
    metrics.store.drop(f"{metrics.folder}/manifest.json")
    compute_here(small_settings())
    assert_frame_equal(metrics.read_all("metrics"), first_metrics)


@pytest.mark.parametrize("method", ["probelm", "distractors"])
def test_aggregate_scores_of_which_none_was_asked_again_have_no_difference(
    finished: Plan, method: str
) -> None:
    (branch,) = finished.branches
    stage, ability = branch.step(branch.metrics).stage, METHODS[method].ask.ability
    assert isinstance(stage, Aggregate)
    assert ability.repeat_table is not None
    recipe = Recipe(ability.answers, 1, {}, {})
    scores = Artifact(Store(f"memory://{uuid4().hex}"), recipe)
    scores.write(ability.answers, "P1", empty(ability.answers))
    other = replace(stage, method=method, answers=scores)
    (rows,) = other._answer_metrics(empty(ability.repeat_table))
    assert rows.select("metric", "value").rows() == [("permutation_difference", None)]

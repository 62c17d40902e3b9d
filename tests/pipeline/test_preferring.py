"""Entities compared after clozes: through the same shards, artifacts and resume as answers."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from transformers import PreTrainedTokenizerFast

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.exports.export import export
from factsweep.pipeline.results import report
from factsweep.pipeline.results.compare import compare_runs
from factsweep.pipeline.results.compare import settings as comparison_settings
from factsweep.pipeline.results.results import load as results_of
from factsweep.pipeline.runs.forecast import forecast
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.plan import Branch, Plan
from tests.chat_server import completion, serving
from tests.messages import naming
from tests.pipeline.here import Dying, named_runs

Compute = Callable[..., Plan]
Settings = Callable[..., Run]
RETRIEVALS = ("random", "semantic", "temporal", "optimal", "exact")


@pytest.fixture(scope="module")
def settings(
    make_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Loads a run of the fake engine on a part of distractors-mini, in the named folder."""
    model = make_model("preferrer")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
    tokenizer.eos_token = "</s>"  # an ending of a name
    tokenizer.save_pretrained(model)
    return named_runs(
        tmp_path_factory.mktemp("preferring"),
        *("benchmark=distractors-mini", "benchmark.relations=[P17,P36]"),
        *("benchmark.pairs_per_relation=5", "decoding.engine=fake", "decoding.canary_prompts=4"),
        *("model.name=preferrer", "model.source=path", f"model.id={model}"),
        *("model.max_model_len=256", "cluster.rows_per_shard=6", "cluster.rows_per_chunk=2"),
    )


@pytest.fixture(scope="module", params=RETRIEVALS)
def full_plan(request: Any, settings: Settings, compute_here: Compute) -> Plan:
    return compute_here(settings(request.param, f"prompt={request.param}"))


def only(plan: Plan) -> Branch:
    (branch,) = plan.branches
    return branch


def overall(branch: Branch) -> dict[str, float]:
    metrics = branch.metrics.read_all("metrics")
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    return dict(rows.select("metric", "value").iter_rows())


def test_every_setting_has_its_numbers_and_none_failed(full_plan: Plan) -> None:
    numbers = overall(only(full_plan))
    assert {"min_at_1", "avg_at_10", "probability", "left_out_at_1"} <= set(numbers)
    assert numbers["permutation_difference"] == 0
    assert only(full_plan).metrics.read_all("metrics")["n_failed"].sum() == 0


def test_min_at_n_of_a_fact_never_rises_with_n(full_plan: Plan) -> None:
    for beaten in only(full_plan).matched.read_all("preferred")["n_beaten"]:
        won = [n == count for n, count in enumerate(beaten, start=1)]
        assert won == sorted(won, reverse=True)


def test_distractors_are_none_of_those_left_out(full_plan: Plan) -> None:
    branch = only(full_plan)
    prompts = branch.prompts.read_all("prompts").select("prompt_id", "answer_id", "left_out")
    rows = branch.answers.read_all("preferences").join(prompts, on="prompt_id")
    assert rows.height == prompts.height
    for answer_id, left_out, distractors in rows.select(
        "answer_id", "left_out", "distractors"
    ).iter_rows():
        ids = {distractor["entity_id"] for distractor in distractors}
        assert answer_id not in ids
        assert not ids & set(left_out)


def test_page_shows_the_hardest_distractors_of_each_fact(full_plan: Plan) -> None:
    report.write(full_plan, {"total": 1.0})
    run = full_plan.run
    results = results_of(f"{run.results}/{run.name}")
    assert results.card["metric"][0] == "Min@1"
    assert {"headline", "retrieval", "tokens", "relations"} <= set(results.tables)
    assert results.answers("P36")["logprob"].null_count() == 0
    page = Path(run.results, run.name, "index.html").read_text()
    assert "Min@1" in page
    for form in ("csv", "lm-eval", "eee"):
        assert Path(export(run.name, run.results, form, None)).is_file()
    with pytest.raises(InputError, match=naming("scores", "candidates", "lm-eval")):
        export(run.name, run.results, "samples", None)


def test_forecast_tokens_are_at_least_those_that_the_engine_read(full_plan: Plan) -> None:
    _, (forecast_,) = forecast(full_plan.run)
    branch = only(full_plan)
    read = sum(int(c["prompt_tokens"]) for c in branch.answers.counts("preferences").values())
    assert forecast_.tokens < read <= forecast_.tokens + forecast_.name_tokens
    clozes = pl.concat(branch.prompts.each("prompts"))
    sets = pl.concat(branch.prompts.each("candidate_sets"))
    sets = sets.unique(["candidates_id", "entity_id"])
    size = (
        sets.explode("labels")
        .group_by("candidates_id")
        .agg(
            pl.col("labels").str.len_bytes().sum() + pl.len()  # a token is a byte; each has a blank
        )
    )
    assert forecast_.name_tokens == clozes.join(size, on="candidates_id")["labels"].sum()


def given(branch: Branch) -> pl.DataFrame:
    """What the run's own engine said of every candidate, one row each."""
    columns = ["prompt_id", "entity_id", "logprob", "label", "n_tokens"]
    preferences = branch.answers.read_all("preferences")
    right = branch.prompts.read_all("prompts").select("prompt_id", entity_id="answer_id")
    answers = preferences.join(right, on="prompt_id").select(*columns, "open_logprob")
    wrong = preferences.select("prompt_id", "distractors").explode("distractors").drop_nulls()
    return pl.concat([answers, wrong.unnest("distractors").select(columns)], how="diagonal")


@pytest.mark.slow
def test_score_of_the_own_log_probabilities_gives_the_runs_numbers(
    full_plan: Plan, settings: Settings, tmp_path: Path
) -> None:
    branch = only(full_plan)
    given(branch).write_parquet(tmp_path / "given.parquet")
    metrics = score(
        settings("given", f"prompt={branch.setting.name}", f"answers={tmp_path}/given.parquet")
    )
    expected = branch.metrics.read_all("metrics").filter(
        pl.col("metric") != "permutation_difference"
    )
    assert_frame_equal(metrics.drop("model"), expected.drop("model"))


def test_score_without_a_candidate_is_refused(
    settings: Settings, compute_here: Compute, tmp_path: Path
) -> None:
    branch = only(compute_here(settings("random", "prompt=random")))
    given(branch).sort("logprob").slice(1).write_parquet(tmp_path / "given.parquet")
    with pytest.raises(InputError, match=naming("row", "give")):
        score(settings("refused", "prompt=random", f"answers={tmp_path}/given.parquet"))


@pytest.mark.slow
def test_continuations_are_measured_where_they_are_asked_for(
    settings: Settings, compute_here: Compute
) -> None:
    overrides = ["prompt=random", "decoding.baselines.beams=3", "decoding.baselines.top_tokens=4"]
    branch = only(compute_here(settings("continued", *overrides)))
    continued = branch.matched.read_all("continued")
    assert continued["texts"].list.len().unique().to_list() == [3]
    assert continued.height == branch.answers.read_all("preferences").height
    metrics = branch.metrics.read_all("metrics").filter(pl.col("slice").is_null())
    rouge = metrics.filter(metric="rouge_l").select("variant", "n", "n_failed").row(0)
    assert rouge == ("width=3", continued.height, 0)
    assert "precision_at_2" in metrics["metric"]


@pytest.mark.slow
def test_karr_is_measured_where_clozes_of_others_are_asked_for(
    settings: Settings, compute_here: Compute
) -> None:
    """One row a fact; as many numbers as there are other subjects (4) and relations (1)."""
    overrides = ["prompt=random", "decoding.baselines.others=3"]
    branch = only(compute_here(settings("others", *overrides)))
    chances = branch.matched.read_all("by_chance")
    assert sorted(chances["pair_id"]) == sorted(
        branch.answers.read_all("preferences").join(
            branch.prompts.read_all("ranked"), on="prompt_id"
        )["pair_id"]
    )
    assert chances["subjects"].list.len().unique().to_list() == [3]
    assert chances["relations"].list.len().unique().to_list() == [1]
    numbers = overall(branch)
    assert 0 <= numbers["karr"] <= 1
    assert math.isfinite(numbers["log_karr"])
    preferences = branch.answers.read_all("preferences")
    first = settings("others-dying", *overrides)
    with pytest.raises(RuntimeError, match=naming("died")):
        compute_here(
            first, Dying(FakeEngine(), preferences.height + 4 + 5)
        )  # in the middle of the chances
    resumed = only(compute_here(first))
    assert_frame_equal(resumed.metrics.read_all("metrics"), branch.metrics.read_all("metrics"))


def everything(folder: Path) -> bytes:
    """The content of all files below a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.slow
def test_judge_over_http_counts_and_its_key_is_nowhere(
    settings: Settings,
    compute_here: Compute,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-4711")
    overrides = ["prompt=random", "decoding.baselines.beams=2", "metrics.judge_model=some-judge"]
    with serving(lambda _: (500, {"error": {"message": "no, sk-secret-4711"}})) as server:
        broken = settings("judged", *overrides, f"metrics.judge_url={server.url}")
        with pytest.raises(InputError, match=naming("some-judge", "<key>")):
            compute_here(broken)
    with serving(lambda _: (200, completion("correct"))) as server:
        plan = compute_here(settings("judged", *overrides, f"metrics.judge_url={server.url}"))
    report.write(plan, {"total": 0.0})
    rows = only(plan).metrics.read_all("metrics").filter(pl.col("slice").is_null())
    assert rows.filter(metric="judge").select("variant", "value").row(0) == ("width=2", 1.0)
    assert server.keys[0] == "Bearer sk-secret-4711"
    written = everything(Path(plan.run.results, "judged")) + everything(Path(plan.run.artifacts))
    assert b"some-judge" in written
    assert b"sk-secret-4711" not in written
    assert "sk-secret-4711" not in caplog.text + "".join(capfd.readouterr())


def worse(branch: Branch, path: Path) -> Path:
    """Answers of another system: as this one's, but that it knows no capital."""
    rows = given(branch)
    right = branch.prompts.read_all("prompts").select("prompt_id", entity_id="answer_id")
    lost = pl.col("prompt_id").str.starts_with("P36.") & pl.col("answer").is_not_null()
    rows = rows.join(right.with_columns(answer=True), on=["prompt_id", "entity_id"], how="left")
    logprob = pl.when(lost).then(-1000.0).otherwise("logprob")
    rows.with_columns(logprob=logprob).drop("answer").write_parquet(path)
    return path


@pytest.mark.slow
def test_compare_says_what_another_system_lost(
    settings: Settings, compute_here: Compute, tmp_path: Path
) -> None:
    plan = compute_here(settings("compared", "prompt=random"))
    report.write(plan, {"total": 0.0})
    path = worse(only(plan), tmp_path / "worse.parquet")
    score(settings("worse", "prompt=random", f"answers={path}"))
    options = comparison_settings({"n_rounds": 100, "min_facts": 5, "alpha": 0.1})
    (comparison,) = compare_runs("compared", "worse", plan.run.results, options, anyway=True)
    preferred = only(plan).matched.read_all("preferred")
    of_capitals = preferred.filter(pl.col("relation_id") == "P36", pl.col("n_distractors") > 0)
    share = pl.col("n_beaten").list.first().mean().over("pair_id")
    fell = of_capitals.with_columns(share=share).unique("pair_id")["share"].sum()
    facts = preferred.filter(pl.col("n_distractors").min().over("pair_id") > 0)[
        "pair_id"
    ].n_unique()
    headline = {row["metric"]: row for row in comparison.report.tables["headline"].to_dicts()}
    assert float(headline["Min@1"]["difference"]) == pytest.approx(-fell / facts, abs=1e-4)
    assert headline["Min@1"]["facts"] == facts
    assert set(comparison.report.tables["facts"]["relation"]) <= {"P36 capital"}
    assert comparison.verdict.outcome == "lower"
    assert "min_at_1" in comparison.verdict.reason
    (again,) = compare_runs("compared", "compared", plan.run.results, options, anyway=False)
    assert again.verdict.outcome == "no difference"


def test_sweep_of_distractors_asks_the_mini_set_in_four_ways() -> None:
    run = load(["sweep=distractors"])
    assert run.benchmark.name == "distractors-mini"
    assert [setting.name for setting in run.settings] == [
        "random",
        "semantic",
        "temporal",
        "optimal",
    ]

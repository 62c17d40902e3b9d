"""Scored texts: through the same shards, artifacts and resume as answers, by a small real model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from transformers import GPT2Config, GPT2LMHeadModel

from factsweep.operators.engines.transformers.likelihood import Likelihood
from factsweep.operators.errors import DecodingError, InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import models
from factsweep.pipeline.results import report
from factsweep.pipeline.runs.run import check_failed, run, score
from factsweep.pipeline.runs.verify import verify
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan
from tests.messages import naming
from tests.pipeline.here import Dying, named_runs

Compute = Callable[..., Plan]
Settings = Callable[..., Run]


@pytest.fixture(scope="module")
def model(make_model: Callable[[str], Path]) -> Path:
    """A model of one layer that knows nothing, and reads bytes."""
    folder = make_model("scorer")
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=257, n_positions=256, n_embd=32, n_layer=1, n_head=2, bos_token_id=0
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def scoring_settings(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Loads a run of that model on a part of probelm-mini; artifacts lie in the named folder."""
    return named_runs(
        tmp_path_factory.mktemp("scoring"),
        *("benchmark=probelm-mini", "benchmark.relations=[P17,P37]"),
        *("benchmark.pairs_per_relation=3", "decoding.canary_prompts=4"),
        *("decoding.scorer=transformers", "model.name=scorer", "model.source=path"),
        *(f"model.id={model}", "model.dtype=float32", "model.max_model_len=256"),
        *("cluster.rows_per_shard=15", "cluster.rows_per_chunk=5"),
    )


@pytest.fixture(scope="module")
def scorer(model: Path) -> Likelihood:
    return Likelihood(GPT2LMHeadModel.from_pretrained(model))


@pytest.fixture(scope="module")
def full_plan(scoring_settings: Settings, scorer: Likelihood, compute_here: Compute) -> Plan:
    return compute_here(scoring_settings("done"), scorer)


@pytest.fixture(scope="module")
def branch(full_plan: Plan) -> Branch:
    (branch,) = full_plan.branches
    return branch


def overall(metrics: pl.DataFrame, metric: str, setting: str) -> float:
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    return float(rows.filter(metric=metric, setting=setting)["value"].item())


def test_scores_are_those_of_the_plain_model(branch: Branch, model: Path, full_plan: Plan) -> None:
    plain = GPT2LMHeadModel.from_pretrained(model).eval()
    tokenizer = models.tokenizer(full_plan.weights)
    shard = branch.prompts.shards("prompts")[0]
    rows = with_text(branch.prompts, "prompts", shard)
    logprob_by_id = dict(
        branch.answers.read("scores", shard).select("prompt_id", "logprob").iter_rows()
    )
    for prompt_id, text in rows.select("prompt_id", "text").iter_rows():
        ids = torch.tensor([tokenizer(text).input_ids])
        with torch.inference_mode():
            logprobs = plain(ids).logits[0, :-1].log_softmax(-1)
        expected = logprobs.gather(-1, ids[0, 1:, None]).sum().item()
        assert logprob_by_id[prompt_id] == pytest.approx(expected, abs=1e-3)


def test_groups_are_never_split(branch: Branch) -> None:
    shards = [branch.prompts.read("prompts", shard) for shard in branch.prompts.shards("prompts")]
    contexts = [set(rows["context_id"]) for rows in shards]
    assert len(shards) > 4
    assert sum(map(len, contexts)) == len(set().union(*contexts)) == 6 * 3


def test_metrics_have_each_prompt_type_and_all_together(branch: Branch) -> None:
    metrics = branch.metrics.read_all("metrics")
    for setting in ("statement", "completion", "question"):
        assert 0 <= overall(metrics, "accuracy", setting) <= overall(metrics, "mrr", setting) <= 1
        assert overall(metrics, "baseline_accuracy", setting) == pytest.approx(1 / 11)
    assert 0 < overall(metrics, "plausibility", "all") < 1
    assert metrics["n_failed"].sum() == 0
    assert 0 <= overall(metrics, "permutation_difference", "all") < 1e-4


def test_killed_in_the_middle_goes_on_and_scores_nothing_twice(
    scoring_settings: Settings, scorer: Likelihood, compute_here: Compute, branch: Branch
) -> None:
    settings = scoring_settings("dies")
    first, second = Dying(scorer, lives=128), Dying(scorer, lives=10**6)
    with pytest.raises(RuntimeError, match=naming("died")):
        compute_here(settings, first)
    (resumed,) = compute_here(settings, second).branches
    n = branch.answers.read_all("scores").height + 4 * 11 * 3
    assert len(second.seen) <= n - 128 + 5  # those in flight
    assert resumed.answers.read_all("scores")["prompt_id"].is_unique().all()
    value = resumed.metrics.read_all("metrics")["value"]
    assert value.to_list() == pytest.approx(branch.metrics.read_all("metrics")["value"].to_list())


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_run_from_the_command_line_is_whole(scoring_settings: Settings, branch: Branch) -> None:
    settings = scoring_settings("ray")
    metrics = run(settings)
    expected = branch.metrics.read_all("metrics")
    for setting in ("statement", "question"):
        assert overall(metrics, "mrr", setting) == overall(expected, "mrr", setting)
    checked, problems = verify(settings)
    assert (checked > 10, problems) == (True, [])


def scores_of(branch: Branch) -> pl.DataFrame:
    columns = ["candidate_id", "setting", "logprob", "n_tokens"]
    return branch.matched.read_all("scored").select(*columns, "entity_logprob", "entity_n_tokens")


def test_score_own_scores_give_the_runs_own_numbers(
    scoring_settings: Settings, branch: Branch, tmp_path: Path
) -> None:
    scores_of(branch).write_parquet(tmp_path / "scores.parquet")
    metrics = score(scoring_settings("given", f"answers={tmp_path}/scores.parquet"))
    expected = branch.metrics.read_all("metrics")
    assert_frame_equal(metrics, expected.filter(pl.col("metric") != "permutation_difference"))


def test_score_one_prompt_type_needs_no_setting(
    scoring_settings: Settings, branch: Branch, tmp_path: Path
) -> None:
    rows = scores_of(branch).filter(setting="question")
    rows.select("candidate_id", "logprob", "n_tokens").write_ndjson(tmp_path / "scores.jsonl")
    overrides = ["prompt.prompt_types=[question]", f"answers={tmp_path}/scores.jsonl"]
    metrics = score(scoring_settings("one", *overrides))
    expected = branch.metrics.read_all("metrics")
    assert overall(metrics, "mrr", "question") == overall(expected, "mrr", "question")
    assert set(metrics["setting"]) == {"question"}


def test_score_without_the_setting_of_several_is_refused(
    scoring_settings: Settings, branch: Branch, tmp_path: Path
) -> None:
    scores_of(branch).drop("setting").write_parquet(tmp_path / "scores.parquet")
    with pytest.raises(InputError, match=naming("column setting")):
        score(scoring_settings("refused", f"answers={tmp_path}/scores.parquet"))


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("logprob", 2.5, r"2\.5; a log-probability is at most 0"),
        ("logprob", float("nan"), "nan; a log-probability"),
        ("entity_logprob", float("inf"), "inf; a log-probability"),
        ("n_tokens", -1, "-1; a number of tokens is at least 0"),
    ],
)
def test_score_number_that_no_model_gives_names_the_row(
    scoring_settings: Settings,
    branch: Branch,
    tmp_path: Path,
    column: str,
    value: float,
    problem: str,
) -> None:
    rows = scores_of(branch)
    third = pl.when(pl.int_range(pl.len()) == 2).then(value).otherwise(column).alias(column)
    rows.with_columns(third).write_parquet(tmp_path / "scores.parquet")
    with pytest.raises(InputError, match=rf"row 2 \(counted from 0\): its {column} is {problem}"):
        score(scoring_settings("absurd", f"answers={tmp_path}/scores.parquet"))


def test_report_has_the_papers_tables(full_plan: Plan) -> None:
    report.write(full_plan, {"total": 0})
    folder = Path(full_plan.run.results) / "done"
    tables = {path.stem for path in (folder / "tables").glob("*.md")}
    assert tables >= {"overview", "headline", "frames", "ranking", "relations", "agreement"}
    assert (folder / "figures" / "frames.svg").exists()
    assert "random order" in (folder / "tables" / "frames.md").read_text()


def test_scores_that_depend_on_their_order_end_the_run(
    scoring_settings: Settings, full_plan: Plan
) -> None:
    check_failed(full_plan)
    strict: Any = build_plan(scoring_settings("done", "decoding.max_permutation_difference=0"))
    (branch,) = strict.branches
    metrics = branch.metrics.read_all("metrics")
    if overall(metrics, "permutation_difference", "all") > 0:
        with pytest.raises(DecodingError, match=naming("scored", "another")):
            check_failed(strict)


def test_score_setting_without_any_answer_says_so_in_one_sentence(
    full_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = type(full_plan.branches[0].metrics)
    nothing = full_plan.branches[0].metrics.read_all("metrics").clear()
    monkeypatch.setattr(metrics, "read_all", lambda *_: nothing)
    with pytest.raises(DecodingError, match=naming("prompt", "answer")):
        check_failed(full_plan)

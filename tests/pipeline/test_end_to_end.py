"""The main job with a real model: vLLM in a Ray actor, from the command line."""

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.runs.forecast import forecast
from tests.command import factsweep

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]
CORE = {
    *("acc_at_1", "fluctuation_range", "fluctuation_sd", "consist", "ovconf", "ece", "brier"),
    *("auroc", "one_word_ratio", "coverage_maximum", "coverage_oracle", "flip_rate", "cut_share"),
}


class Finished(NamedTuple):
    """A run from the command line."""

    overrides: list[str]
    folder: Path
    process: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, smollm2: Weights) -> Finished:
    """A run on a slice of the mini set."""
    models.location(smollm2)
    folder = tmp_path_factory.mktemp("end_to_end")
    overrides = [
        "sweep=demo",
        "model.dtype=float32",  # in which answers do not depend on what else is in a batch
        "benchmark.relations=[P36]",
        "benchmark.pairs_per_relation=5",
        "decoding.samples.n_prompts=4",
        "decoding.samples.n_answers=8",
        "metrics.n_draws=1000",
        "metrics.n_rounds=50",
        f"artifacts={folder}/artifacts",
        f"results={folder}/results",
    ]
    return Finished(overrides, folder, factsweep("run", overrides))


@pytest.fixture(scope="module")
def metrics(done: Finished) -> pl.DataFrame:
    return pl.read_parquet(done.folder / "results/demo/metrics.parquet")


def test_run_ends_with_0_and_prints_its_first_prompt_and_the_card(done: Finished) -> None:
    assert done.process.returncode == 0, done.process.stderr
    assert "Acc@1" in done.process.stdout
    assert "first prompt, " in done.process.stderr
    assert "Predict the [MASK] in each sentence in one word." in done.process.stderr
    headline = (done.folder / "results/demo/tables/headline.md").read_text()
    assert "Acc@1" in headline
    assert "zero-shot" in headline


def test_run_metrics_hold_every_core_number_of_both_settings(metrics: pl.DataFrame) -> None:
    overall = metrics.filter(pl.col("slice").is_null())
    for setting in ("zero-shot", "4-template"):
        assert set(overall.filter(setting=setting)["metric"]) >= CORE
    accuracy = overall.filter(metric="acc_at_1")
    found = dict(accuracy.select("setting", "value").iter_rows())
    assert found["4-template"] > found["zero-shot"]  # demonstrations help
    flips = metrics.filter(metric="flip_rate")
    assert flips["n"].to_list() == [5] * 2  # one prompt per pair
    assert flips["value"].is_between(0, 0.2).all()


def test_run_counts_are_the_plans(done: Finished, metrics: pl.DataFrame) -> None:
    _, forecasts = forecast(load(done.overrides))
    planned = {f.branch.setting.name: sum(f.prompts.values()) for f in forecasts}
    counted = metrics.filter(pl.col("slice").is_null()).filter(metric="acc_at_1")
    assert dict(counted.select("setting", "n").iter_rows()) == planned
    assert [set(f.n_left.values()) for f in forecasts] == [{0}, {0}]


def test_run_shared_prefixes_come_from_the_cache(done: Finished) -> None:
    record = json.loads((done.folder / "results/demo/run.json").read_text())
    cost = record["cost"]["generations"]
    assert cost["cached_tokens"] > 0.2 * cost["prompt_tokens"]
    assert cost["core_hours"] > 0


def test_verify_finds_nothing(done: Finished) -> None:
    process = factsweep("verify", done.overrides)
    assert process.stdout.endswith(" shards read, 0 problems\n"), process.stderr
    assert process.returncode == 0


def test_run_second_time_decodes_nothing(done: Finished) -> None:
    store = done.folder / "artifacts"
    files = [path for path in store.rglob("*") if path.is_file()]
    paths = [path for path in files if path.parent != store / "uses"]  # when it was last used
    before = {path: path.stat().st_mtime_ns for path in paths}
    process = factsweep("run", done.overrides)
    assert process.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in paths} == before
    assert process.stdout == done.process.stdout

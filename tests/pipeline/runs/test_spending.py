"""The cost of a run, and the rates from which the next one is planned."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import costs
from factsweep.pipeline.decoding.costs import spent
from factsweep.pipeline.machine import processor
from factsweep.pipeline.results import report
from factsweep.pipeline.runs.run import run
from factsweep.pipeline.stages.plan import Plan, planned
from factsweep.pipeline.stages.stage import Alone
from factsweep.pipeline.stages.step import timed
from tests.builders import results_of
from tests.messages import naming
from tests.pipeline.here import complete, overwrite

Settings = Callable[..., Run]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))


def record(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results_of(plan) / "run.json").read_text())
    return found


def cost(plan: Plan) -> dict[str, dict[str, str | None]]:
    rows = pl.read_csv(results_of(plan) / "tables/cost.csv", infer_schema=False)
    return {row["stage"]: row for row in rows.iter_rows(named=True)}


def test_spent_has_a_row_for_each_artifact_with_what_footers_say(finished: Plan) -> None:
    (branch,) = finished.branches
    rows = spent(finished)
    assert rows["fingerprint"].to_list() == [each.fingerprint for each in branch.artifacts()]
    (greedy,) = rows.filter(stage="generations").iter_rows(named=True)
    assert greedy["answers"] == branch.answers.read_all("generations").height
    assert (greedy["hardware"], greedy["model"], greedy["gpus"]) == ("fake engine", "tiny", 0)
    assert 0 < greedy["idle_seconds"] < greedy["seconds"]
    files = Path(branch.answers.store.root, branch.answers.folder).rglob("*.parquet")
    assert greedy["bytes"] == sum(path.stat().st_size for path in files)
    (prompts,) = rows.filter(stage="prompts").iter_rows(named=True)
    assert (prompts["answers"], prompts["seconds"]) == (72, None)


def test_timed_stage_is_told_with_its_processor(finished: Plan) -> None:
    (branch,) = finished.branches
    with timed(branch.matched, Alone()):
        sum(range(100_000))
    (row,) = spent(finished).filter(stage="matched").iter_rows(named=True)
    assert row["hardware"] == processor.cpu()
    assert row["seconds"] > 0
    assert row["core_seconds"] > 0


def test_rates_of_shards_from_two_machines_are_of_neither(
    finished: Plan, small_settings: Settings
) -> None:
    (branch,) = finished.branches
    frame = branch.answers.read("generations", "P30.0000")
    counts = dict(branch.answers.counts("generations")["P30.0000"])
    overwrite(branch.answers, "generations", "P30.0000", frame, {**counts, "hardware": "another"})
    complete(finished, branch.answers)
    (row,) = spent(finished).filter(stage="generations").iter_rows(named=True)
    assert row["seconds"] > 0
    assert row["hardware"] is None
    costs.publish(finished)
    kept = costs.known(planned(small_settings("seed=1")))
    assert "generations" not in kept.filter(model="tiny")["stage"].to_list()


def test_rates_where_a_folder_lies_in_their_place_end_no_run(
    finished: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    costs.publish(finished)
    (kept,) = Path(finished.run.artifacts, "rates").glob("*.json")
    kept.unlink()
    kept.mkdir()
    with caplog.at_level("WARNING"):
        costs.publish(finished)
    assert re.search(naming(kept.name, "no file"), caplog.text)


def test_rates_are_published_once_and_known_to_the_next_run(
    finished: Plan, small_settings: Settings, tmp_path: Path
) -> None:
    costs.publish(finished)
    (file,) = (tmp_path / "artifacts/rates").iterdir()
    before = file.stat().st_mtime_ns
    costs.publish(finished)
    assert file.stat().st_mtime_ns == before
    known = costs.known(planned(small_settings("seed=1")))
    tiny = known.filter(model="tiny")
    assert set(tiny["stage"]) == {"generations", "canary", "samples"}
    assert tiny["fingerprint"].is_unique().all()


def test_run_that_computes_nothing_keeps_the_cost_of_the_first(finished: Plan) -> None:
    report.write(finished, {"total": 5.0}, is_new=True)
    first, table = record(finished), cost(finished)
    assert 0 < float(str(table["generations"]["idle"]).rstrip("%")) < 100
    exported = Path(finished.run.folder, "export/metrics.csv")
    exported.parent.mkdir()
    exported.touch()
    run(finished.run)
    again = record(finished)
    assert exported.exists()
    assert (again["started"], again["spent"]) == (first["started"], first["spent"])
    assert cost(finished) == table
    other = {**first, "artifacts": {"zero-shot": ["metrics/0123456789abcdef"]}}
    report.write(finished, {"total": 9.0}, other)  # after another run of that name
    assert record(finished)["seconds"] == {"total": 9.0}
    assert not exported.exists()


def test_report_code_from_the_hub_is_shown(
    finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    trusting = replace(finished.run, model=replace(finished.run.model, trust_remote_code=True))
    for given, shown in ((finished, False), (replace(finished, run=trusting), True)):
        report.write(given, {"total": 0})
        assert main(["report", f"results={finished.run.results}"]) == 0
        assert ("model.trust_remote_code=true" in capsys.readouterr().out) == shown


def test_machine_gpu_is_what_the_driver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the driver's tool: there is no GPU here."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\ncase "$*" in *--id=3) echo "NVIDIA H100 80GB HBM3";; *) exit 9;; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    processor.gpu.cache_clear()
    assert processor.gpu() == "NVIDIA H100 80GB HBM3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    processor.gpu.cache_clear()
    assert processor.gpu() == processor.UNKNOWN_GPU
    processor.gpu.cache_clear()

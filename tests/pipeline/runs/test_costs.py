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

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import costs
from factsweep.pipeline.decoding.costs import (
    SPENT,
    PlanHardware,
    collect_costs,
    cost_table,
    predict,
)
from factsweep.pipeline.decoding.rough_rates import Range, rough_seconds
from factsweep.pipeline.machine import logs, processor
from factsweep.pipeline.results import report
from factsweep.pipeline.runs.run import run
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.stages.step import SingleProcess, note_time
from tests.builders import results_of
from tests.messages import naming
from tests.pipeline.here import complete, overwrite

Settings = Callable[..., Run]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))


def record(plan: Plan) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((results_of(plan) / "run.json").read_text())
    return content


def cost(plan: Plan) -> dict[str, dict[str, str | None]]:
    rows = pl.read_csv(results_of(plan) / "tables/cost.csv", infer_schema=False)
    return {row["stage"]: row for row in rows.iter_rows(named=True)}


def test_spent_has_a_row_for_each_artifact_with_what_footers_say(finished: Plan) -> None:
    (branch,) = finished.branches
    rows = collect_costs(finished)
    assert rows["fingerprint"].to_list() == [
        artifact.fingerprint for artifact in branch.artifacts()
    ]
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
    with note_time(branch.matched, SingleProcess()):
        sum(range(100_000))
    (row,) = collect_costs(finished).filter(stage="matched").iter_rows(named=True)
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
    (row,) = collect_costs(finished).filter(stage="generations").iter_rows(named=True)
    assert row["seconds"] > 0
    assert row["hardware"] is None
    costs.publish_rates(finished)
    rates = costs.load_rates(build_plan(small_settings("seed=1")))
    assert "generations" not in rates.filter(model="tiny")["stage"].to_list()


def test_rates_where_a_folder_lies_in_their_place_end_no_run(
    finished: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    costs.publish_rates(finished)
    (path,) = Path(finished.run.artifacts, "rates").glob("*.json")
    path.unlink()
    path.mkdir()
    logs.LOST.clear()
    with caplog.at_level("WARNING"):
        costs.publish_rates(finished)
    assert re.search(naming("continues without its rates", path.name), caplog.text)


@pytest.mark.parametrize(
    "rows", [5, "text", [3], [{"seconds": "x"}], {"seconds": 1}, {"zz": 3}, [{"gpus": 10**30}]]
)
def test_rates_of_other_types_are_left_out(
    finished: Plan, caplog: pytest.LogCaptureFixture, rows: object
) -> None:
    rates_before = costs.load_rates(finished)
    finished.store.put_json("rates/more.json", {"rows": rows})
    with caplog.at_level("WARNING"):
        assert costs.load_rates(finished).equals(rates_before)
    assert re.search(naming("more.json", "left out"), caplog.text)


@pytest.mark.parametrize("change", [{"hardware": 3}, {"seconds": "x"}, {"core_seconds": None}])
def test_cost_of_other_types_is_damaged(finished: Plan, change: dict[str, object]) -> None:
    matched = finished.branches[0].matched
    right = {"hardware": "a", "seconds": 1, "core_seconds": 1.5}
    matched.put_note("cost.json", right)
    assert collect_costs(finished).filter(stage="matched")["seconds"].to_list() == [1.0]
    matched.put_note("cost.json", right | change)
    with pytest.raises(DamagedFileError, match=naming("cost.json", *change)):
        collect_costs(finished)


def test_rates_are_published_once_and_known_to_the_next_run(
    finished: Plan, small_settings: Settings, tmp_path: Path
) -> None:
    costs.publish_rates(finished)
    (file,) = (tmp_path / "artifacts/rates").iterdir()
    modified_ns = file.stat().st_mtime_ns
    costs.publish_rates(finished)
    assert file.stat().st_mtime_ns == modified_ns
    rates = costs.load_rates(build_plan(small_settings("seed=1")))
    tiny = rates.filter(model="tiny")
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
    new_record = record(finished)
    assert exported.exists()
    assert (new_record["started"], new_record["spent"]) == (first["started"], first["spent"])
    assert cost(finished) == table
    other = {**first, "artifacts": {"zero-shot": ["metrics/0123456789abcdef"]}}
    report.write(finished, {"total": 9.0}, other)  # after another run of that name
    assert record(finished)["seconds"] == {"total": 9.0}
    assert not exported.exists()


def test_report_code_from_the_hub_is_shown(
    finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    trusting = replace(finished.run, model=replace(finished.run.model, trust_remote_code=True))
    for plan, is_shown in ((finished, False), (replace(finished, run=trusting), True)):
        report.write(plan, {"total": 0})
        assert main(["report", f"results={finished.run.results}"]) == 0
        assert ("model.trust_remote_code=true" in capsys.readouterr().out) == is_shown


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


ENGINE: dict[str, Any] = {
    "stage": "generations",
    "setting": "zero-shot",
    "model": "m",
    "dtype": "bfloat16",
    "hardware": "NVIDIA H100 80GB HBM3",
    "gpus": 1,
    "cores": 0,
    "prompts": 100,
    "answers": 100,
    "prompt_tokens": 2000,
    "cached_tokens": 500,
    "output_tokens": 300,
    "seconds": 10.0,
    "core_seconds": 0.0,
    "bytes": 5000,
}
H100 = PlanHardware("H100", 1, None, "EPYC", "bfloat16")


def took(*changes: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{**ENGINE, **change} for change in changes], schema=SPENT)


def work(answers: int = 200, **changes: Any) -> pl.DataFrame:
    rows = took({**changes, "answers": answers})
    return rows.select("stage", "setting", "model", "answers")


def seconds(
    measured: pl.DataFrame, list_missing_answers: pl.DataFrame, place: PlanHardware = H100
) -> float | None:
    row: float | None = predict(list_missing_answers, measured, place)["seconds"][0]
    return row


def test_predict_the_same_work_takes_what_it_took() -> None:
    (row,) = predict(work(100), took({}), H100).iter_rows(named=True)
    assert (row["seconds"], row["gpu_hours"], row["bytes"]) == (10.0, 10 / 3600, 5000)


@pytest.mark.parametrize(
    "other",
    [
        {"hardware": "NVIDIA A100-SXM4-80GB"},
        {"model": "another"},
        {"dtype": "float32"},
        {"dtype": None},
        {"stage": "samples"},
        {"gpus": 8},
        {"per_gpu": 2},
        {"hardware": None},
        {"seconds": None},
    ],
)
def test_predict_time_measured_otherwise_is_never_taken(other: dict[str, Any]) -> None:
    assert seconds(took(other), work()) is None
    assert seconds(took(other, {}), work()) == 20.0


def test_predict_engines_that_share_a_gpu_have_their_own_rates() -> None:
    measured = took({"per_gpu": 2, "seconds": 12.0}, {})
    shared = replace(H100, per_gpu=2)
    (row,) = predict(work(100), measured, shared).iter_rows(named=True)
    assert (row["seconds"], row["gpu_hours"]) == (12.0, 6 / 3600)
    assert seconds(measured, work(100)) == 10.0


def test_predict_cores_are_told_apart() -> None:
    cpu = {"hardware": "EPYC", "gpus": 0}
    measured = took({**cpu, "cores": 2, "seconds": 40.0}, {**cpu, "cores": 8})
    assert seconds(measured, work(100), PlanHardware("EPYC", 0, 2, "EPYC", "bfloat16")) == 40.0


def test_predict_the_same_setting_comes_before_others() -> None:
    measured = took({"setting": "4-template", "seconds": 30.0}, {})
    assert seconds(measured, work(100)) == 10.0
    (row,) = predict(work(100, setting="4-random"), measured, H100).iter_rows(named=True)
    assert row["seconds"] == 20.0  # 200 answers in 40 s
    assert row["basis"].endswith("NVIDIA H100 80GB HBM3, in other settings")


def test_predict_stages_without_an_engine_go_by_like_sizes_on_the_same_processor() -> None:
    small = took({"stage": "prompts", "model": None, "gpus": 0, "hardware": "EPYC"})
    xeon = PlanHardware("H100", 1, None, "Xeon", "bfloat16")
    huge = small.with_columns(pl.col("answers") * 10_000, pl.col("seconds") * 20_000)
    for measured, n, place, expected in (
        (small, 100, H100, 10.0),
        (small, 100, xeon, None),
        (small, 10_000, H100, 1000.0),  # a hundred times as many
        (small, 0, H100, None),
        (small, 10_001, H100, None),
        (pl.concat([small, huge]), 100, H100, 10.0),
    ):
        assert seconds(measured, work(n, stage="prompts", model=None), place) == expected
    assert seconds(took({}), work(10_001)) == 1000.1


def test_cost_table_adds_up_blocks_and_keeps_the_unknown_apart() -> None:
    rows = took({}, {}, {"stage": "matched", "prompt_tokens": None, "seconds": None})
    by_stage = {row["stage"]: row for row in cost_table(rows).iter_rows(named=True)}
    assert by_stage["generations"]["answers"] == "200"
    assert by_stage["generations"]["engine-hours"] == f"{20 / 3600:.4f}"
    assert by_stage["matched"]["core-hours"] is None


def _rough(billions: float, hardware: str, gpus: int = 1, stage: str = "generations") -> Range:
    cores = None if gpus else 2
    rough = rough_seconds(costs.load_shipped_rates(), stage, billions, hardware, gpus, cores)
    assert rough is not None
    return rough


def test_rough_range_holds_what_was_measured_and_grows_with_the_model() -> None:
    rates = costs.load_shipped_rates().filter(stage="generations")
    for row in rates.iter_rows(named=True):
        least, most, _ = _rough(row["billions"], row["hardware"], row["gpus"])
        assert least < row["seconds"] / row["answers"] < most
    small, large = _rough(8, "NVIDIA H100 80GB"), _rough(70, "NVIDIA H100 80GB", gpus=4)
    assert small.least < large.least
    assert large.most < _rough(70, "A40", gpus=4).most < _rough(70, "EPYC", gpus=0).least


def test_rough_range_of_an_unknown_gpu_is_that_of_the_kinds_that_fit() -> None:
    unknown = _rough(70, processor.UNKNOWN_GPU, gpus=4)
    ends = [_rough(70, name, gpus=4) for name in ("H100", "A40")]  # not H200: two would do
    assert unknown[:2] == (ends[0].least, ends[1].most)

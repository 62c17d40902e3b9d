"""Predictions: from the same hardware, model and stage alone, in proportion to the answers."""

from typing import Any

import polars as pl
import pytest

from factsweep.pipeline.decoding.costs import SPENT, Place, cost_table, predict

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
H100 = Place("H100", 1, None, "EPYC", "bfloat16")


def spent(*changes: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{**ENGINE, **each} for each in changes], schema=SPENT)


def work(answers: int = 200, **changes: Any) -> pl.DataFrame:
    rows = spent({**changes, "answers": answers})
    return rows.select("stage", "setting", "model", "answers")


def seconds(measured: pl.DataFrame, asked: pl.DataFrame, place: Place = H100) -> float | None:
    found: float | None = predict(asked, measured, place)["seconds"][0]
    return found


def test_predict_the_same_work_takes_what_it_took() -> None:
    (found,) = predict(work(100), spent({}), H100).iter_rows(named=True)
    assert (found["seconds"], found["gpu_hours"], found["bytes"]) == (10.0, 10 / 3600, 5000)


@pytest.mark.parametrize(
    "other",
    [
        {"hardware": "NVIDIA A100-SXM4-80GB"},
        {"model": "another"},
        {"dtype": "float32"},
        {"dtype": None},
        {"stage": "samples"},
        {"gpus": 8},
        {"hardware": None},
        {"seconds": None},
    ],
)
def test_predict_time_measured_otherwise_is_never_taken(other: dict[str, Any]) -> None:
    assert seconds(spent(other), work()) is None
    assert seconds(spent(other, {}), work()) == 20.0


def test_predict_cores_are_told_apart() -> None:
    cpu = {"hardware": "EPYC", "gpus": 0}
    measured = spent({**cpu, "cores": 2, "seconds": 40.0}, {**cpu, "cores": 8})
    assert seconds(measured, work(100), Place("EPYC", 0, 2, "EPYC", "bfloat16")) == 40.0


def test_predict_the_same_setting_comes_before_others() -> None:
    measured = spent({"setting": "4-template", "seconds": 30.0}, {})
    assert seconds(measured, work(100)) == 10.0
    (found,) = predict(work(100, setting="4-random"), measured, H100).iter_rows(named=True)
    assert found["seconds"] == 20.0  # 200 answers in 40 s
    assert found["basis"].endswith("NVIDIA H100 80GB HBM3, in other settings")


def test_predict_stages_without_an_engine_need_the_same_processor() -> None:
    measured = spent({"stage": "prompts", "model": None, "gpus": 0, "hardware": "EPYC"})
    asked = work(100, stage="prompts", model=None)
    assert seconds(measured, asked) == 10.0
    assert seconds(measured, asked, Place("H100", 1, None, "Xeon", "bfloat16")) is None


def test_predict_stages_without_an_engine_are_not_stretched_beyond_a_hundred_times() -> None:
    measured = spent({"stage": "prompts", "model": None, "gpus": 0, "hardware": "EPYC"})
    assert seconds(measured, work(10_000, stage="prompts", model=None)) == 1000.0
    for n in (0, 10_001):
        assert seconds(measured, work(n, stage="prompts", model=None)) is None
    assert seconds(spent({}), work(10_001)) == 1000.1


def test_cost_table_adds_up_blocks_and_keeps_the_unknown_apart() -> None:
    rows = spent({}, {}, {"stage": "matched", "prompt_tokens": None, "seconds": None})
    found = {row["stage"]: row for row in cost_table(rows).iter_rows(named=True)}
    assert found["generations"]["answers"] == "200"
    assert found["generations"]["engine-hours"] == f"{20 / 3600:.4f}"
    assert found["matched"]["core-hours"] is None


def test_predict_stages_without_an_engine_go_by_work_of_a_like_size() -> None:
    stage = {"stage": "prompts", "model": None, "gpus": 0, "hardware": "EPYC"}
    small = spent(stage)
    huge = small.with_columns(pl.col("answers") * 10_000, pl.col("seconds") * 20_000)
    asked = work(100, stage="prompts", model=None)
    assert seconds(pl.concat([small, huge]), asked) == seconds(small, asked)

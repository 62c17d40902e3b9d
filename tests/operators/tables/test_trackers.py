"""The layout of lm-evaluation-harness has the same numbers."""

import json
from datetime import datetime
from typing import Any

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty
from factsweep.operators.tables.trackers import harness_path, harness_results
from tests.messages import naming

STARTED = datetime(2026, 11, 21, 18, 30, 15)
ENDS = {"acc_at_1": True, "fluctuation_sd": False}
RECORD = {
    "run": {
        "model": {"id": "org/model-1b", "revision": "main", "dtype": "bfloat16"},
        "benchmark": {"name": "mini", "data": "mini-data"},
        "decoding": {"engine": "vllm", "max_tokens": 10, "stop": ["\n"]},
        "metrics": {"n_rounds": 1000},
        "cluster": {"device": "auto"},
        "seed": 7,
    },
    "model_revision": "abc",
    "versions": {"factsweep": "0.1.0", "transformers": "5.19.0"},
    "commit": "36795b7",
    "seconds": {"total": 12.5},
}


def metrics(*rows: tuple[Any, ...]) -> pl.DataFrame:
    names = ("setting", "variant", "slice", "metric", "value", "ci_low", "ci_high")
    columns = [dict(zip(names, row, strict=True)) for row in rows]
    fixed = {"model": "model-1b", "benchmark": "mini", "n": 95, "n_failed": 5}
    return pl.DataFrame([{**fixed, **row} for row in columns], schema=empty("metrics").schema)


TABLE = metrics(
    ("zero-shot", None, None, "acc_at_1", 0.25, 0.2, 0.3),
    ("zero-shot", None, None, "ovconf", -0.1, -0.2, 0.0),
    ("zero-shot", "draw=pair", None, "fluctuation_sd", 0.01, None, None),
    ("zero-shot", None, "relation=P36", "acc_at_1", 0.5, 0.25, 0.75),
    ("zero-shot", None, "relation=P17", "acc_at_1", None, None, None),
    ("4-template", "style=question,scope=prompt", None, "acc_at_1", 0.75, 0.7, 0.8),
)


def results() -> dict[str, Any]:
    return harness_results(TABLE, RECORD, STARTED, ENDS)


def test_harness_results_has_each_defined_number_under_task_metric_and_filter() -> None:
    content = results()["results"]
    numbers = {
        (task, key): value
        for task, values in content.items()
        for key, value in values.items()
        if "," in key and "_stderr" not in key
    }
    assert numbers == {
        ("mini_zero-shot", "acc_at_1,none"): 0.25,
        ("mini_zero-shot", "ovconf,none"): -0.1,
        ("mini_zero-shot", "fluctuation_sd,draw=pair"): 0.01,
        ("mini_zero-shot_P36", "acc_at_1,none"): 0.5,
        ("mini_4-template", "acc_at_1,style=question+scope=prompt"): 0.75,
    }
    assert content["mini_zero-shot"]["acc_at_1_stderr,none"] == pytest.approx(0.1 / 3.92, rel=1e-4)
    assert content["mini_zero-shot"]["fluctuation_sd_stderr,draw=pair"] == "N/A"


def test_harness_results_slices_are_the_tasks_of_a_group() -> None:
    content = results()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["group_subtasks"] == {
        "mini_zero-shot": ["mini_zero-shot_P36"]  # P17 has no numbers
    }
    assert content["groups"] == {"mini_zero-shot": content["results"]["mini_zero-shot"]}
    assert content["n-shot"]["mini_4-template"] == 4
    assert content["n-samples"]["mini_zero-shot_P36"] == {"original": 100, "effective": 95}
    better = {"acc_at_1": True, "ovconf": None, "fluctuation_sd": False}
    assert content["higher_is_better"]["mini_zero-shot"] == better
    for part in ("configs", "versions", "n-shot", "higher_is_better", "n-samples"):
        assert content[part].keys() == content["results"].keys()
    without = harness_results(TABLE.filter(pl.col("slice").is_null()), RECORD, STARTED, ENDS)
    assert ("groups" in without, without["group_subtasks"]) == (False, {})
    assert harness_path(RECORD, STARTED) == "org__model-1b/results_2026-11-21T18-30-15.json"


@pytest.mark.parametrize("models", [[], ["a", "b"]])
def test_harness_results_of_no_run_or_two_is_refused(models: list[str]) -> None:
    rows = pl.concat(
        [TABLE.head(0), *(TABLE.head(1).with_columns(model=pl.lit(row)) for row in models)]
    )
    with pytest.raises(InputError, match=naming("give", "those")):
        harness_results(rows, RECORD, STARTED, ENDS)

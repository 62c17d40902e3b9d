"""decoding.samples.until: blocks of samples until an interval is narrow, with a fake engine."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load, run_of_record
from factsweep.pipeline.results.run_record import describe_run
from factsweep.pipeline.runs.run import measure_run
from factsweep.pipeline.runs.run_files import Pulse, is_pulse_of
from factsweep.pipeline.stages.plan import build_plan
from tests.messages import naming
from tests.pipeline.here import make_here

pytestmark = pytest.mark.usefixtures("plain")
BLOCKS = ("decoding.samples.n_answers=12", "decoding.samples.block_size=4")
Settings = Callable[..., Run]


class Counting(FakeEngine):
    """Counts the samples that are asked."""

    n_samples = 0

    def answers(self, requests: Iterable[Any]) -> Iterator[Any]:
        for answer in super().answers(requests):
            self.n_samples += len(answer.completions) if len(answer.completions) > 1 else 0
            yield answer


def until(
    target: str, settings: Settings, engine: FakeEngine
) -> tuple[dict[str, Any], pl.DataFrame]:
    """The record and the metrics of a run with a target of its samples."""
    run = settings(*BLOCKS, f"decoding.samples.until='{target}'")
    metrics = measure_run(run, lambda plan: make_here(plan, engine))
    record: dict[str, Any] = json.loads(Path(run.results, run.name, "run.json").read_text())
    return record, metrics


def samples_of(settings: Settings, n_answers: int) -> set[str]:
    plan = build_plan(settings(*BLOCKS, f"decoding.samples.n_answers={n_answers}"))
    return {step.artifact.folder for step in plan.steps if step.artifact.stage == "samples"}


@pytest.mark.parametrize(("target", "n_answers"), [("ovconf±0.99", 4), ("pass_at_10±0.99", 12)])
def test_samples_until_stops_at_the_block_that_is_enough(
    small_settings: Settings, target: str, n_answers: int, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Counting()
    record, metrics = until(target, small_settings, engine)
    assert record["run"]["decoding"]["samples"]["n_answers"] == n_answers
    assert engine.n_samples == 8 * n_answers
    folders = {folder for folders in record["artifacts"].values() for folder in folders}
    # The answers are those of a run that asks as many from the start.
    assert {name for name in folders if name.startswith("samples/")} == samples_of(
        small_settings, n_answers
    )
    assert "is reached" in caplog.text
    again, same_metrics = until(target, small_settings, engine)
    assert engine.n_samples == 8 * n_answers
    assert same_metrics.equals(metrics)
    assert again["seconds"] == record["seconds"]


def test_samples_until_out_of_reach_asks_the_most_and_says_so(
    small_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Counting()
    record, _ = until("brier±0.000001", small_settings, engine)
    assert engine.n_samples == 8 * 12
    assert record["run"]["decoding"]["samples"]["n_answers"] == 12
    looks = [line for line in caplog.text.splitlines() if "brier is" in line]
    assert len(looks) == 3
    assert all("wider than" in line for line in looks)
    assert "not reached with decoding.samples.n_answers=12" in caplog.text


def test_samples_until_is_one_run_for_its_watchers(small_settings: Settings) -> None:
    run, fewer = (
        small_settings(f"decoding.samples.n_answers={n}", "decoding.samples.until=ovconf±.1")
        for n in (100, 25)
    )
    pulse = Pulse("", "running", "", 1, {}, None, None, None, describe_run(fewer))
    assert is_pulse_of(pulse, run)
    assert not is_pulse_of(pulse, small_settings("decoding.samples.n_answers=100"))


def test_record_without_until_is_one_of_a_run_without_a_target(small_settings: Settings) -> None:
    recorded = describe_run(small_settings())
    del recorded["decoding"]["samples"]["until"]
    assert run_of_record(recorded).decoding.samples.until is None


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("decoding.samples.until=acc_at_1±0.1", ("acc_at_1", "ovconf", "pass_at_5")),
        ("decoding.samples.until=ovconf", ("decoding.samples.until=ovconf", "±")),
        ("decoding.samples.until=ovconf±1.5", ("less than 1",)),
    ],
)
def test_samples_until_of_no_target_is_refused(override: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=naming(*words)):
        load([override])


@pytest.mark.parametrize("other", ["decoding=greedy", "budget=5%", "benchmark=kamel-mini"])
def test_samples_until_without_samples_is_refused(other: str) -> None:
    with pytest.raises(
        InputError, match=naming("decoding.samples.until", "no samples", "n_prompts")
    ):
        load([other, "decoding.samples.until=pass_at_1±0.1"])

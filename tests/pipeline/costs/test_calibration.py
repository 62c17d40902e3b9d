"""plan --calibrate: what a minute of the engine says of a plan. The engine is fake and slow."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from operators.engines.fake import WISH
from operators.errors import InputError
from pipeline.cli import main
from pipeline.config.settings import Run
from pipeline.costs.calibration import calibrate, measured

Settings = Callable[..., Run]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WISH, json.dumps({"seconds_per_answer": 0.05}))


def test_measured_rate_is_the_engines_within_the_time(slow: None, small_settings: Settings) -> None:
    rows = measured(small_settings(), limit_s=1.5)
    assert rows["stage"].to_list() == ["generations", "canary", "samples"]
    assert rows["setting"].unique().to_list() == ["4-template"]
    assert rows["hardware"].unique().to_list() == ["fake engine"]
    prompts_per_s = rows["prompts"] / rows["seconds"]
    assert prompts_per_s.is_between(0.1 / 0.05, 1 / 0.05).all()  # neighbours slow it down
    asked_for = rows.filter(stage="samples").row(0, named=True)
    assert asked_for["answers"] == 25 * asked_for["prompts"]
    assert rows["seconds"].sum() < 1.5 + 3 * 0.5


def test_plan_calibrate_keeps_the_rate_and_publishes_nothing(
    small: list[str],
    shared_ray: None,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("pipeline.costs.calibration.LIMIT_S", 0.5)
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    assert main(["plan", "--calibrate", *small, *folders]) == 0
    said = capsys.readouterr().out
    assert said.count("measured        ") == 3
    assert "of decoding with 1 replicas" in said
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    (kept,) = (home / "rates").iterdir()
    assert pl.read_csv(kept)["model"].unique().to_list() == ["tiny"]
    # The next plan knows it without measuring.
    assert main(["plan", *small, *folders]) == 0
    assert "of decoding with 1 replicas" in capsys.readouterr().out


def test_calibrate_a_replica_over_several_nodes_is_refused(small_settings: Settings) -> None:
    run = small_settings("model.pipeline_parallel=2")
    with pytest.raises(InputError, match=r"pipeline_parallel=2 give cluster\.answers_per_s"):
        list(calibrate(run))

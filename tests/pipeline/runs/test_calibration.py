"""plan --calibrate: what a minute of the engine says of a plan. The engine is fake."""

import json
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import PreTrainedTokenizerFast

from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.runs.calibration import calibrate, measured
from tests.messages import naming

Settings = Callable[..., Run]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_measured_rate_is_the_engines_within_the_time(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=partial(next, count()))  # a second passes between two looks
    monkeypatch.setattr("factsweep.pipeline.runs.calibration.time", clock)
    rows = measured(small_settings(), limit_s=30)
    assert rows["stage"].to_list() == ["generations", "canary", "samples"]
    assert rows["setting"].unique().to_list() == ["4-template"]
    assert rows["hardware"].unique().to_list() == ["fake engine"]
    assert rows["prompts"].max() == 11  # a stage has 10 s, and its last prompt is over after them
    assert (rows["seconds"] - rows["prompts"]).unique().to_list() == [1]
    asked_for = rows.filter(stage="samples").row(0, named=True)
    assert asked_for["answers"] == 25 * asked_for["prompts"]


def test_measured_candidates_are_read_from_beside_the_prompts(
    small_settings: Settings, make_model: Callable[[str], Path]
) -> None:
    model = make_model("compared")
    reads = PreTrainedTokenizerFast.from_pretrained(model)
    reads.eos_token = "</s>"  # an ending of a name
    reads.save_pretrained(model)
    few = ["benchmark.relations=[P36]", "benchmark.pairs_per_relation=2", "benchmark.path=null"]
    run = small_settings("benchmark=distractors-mini", "prompt=random", f"model.id={model}", *few)
    rows = measured(run, limit_s=30)
    assert rows["stage"].to_list() == ["preferences", "preferred_again"]
    assert (rows["prompt_tokens"] > rows["prompts"]).all()


@pytest.mark.slow
def test_plan_calibrate_keeps_the_rate_and_publishes_nothing(
    small: list[str],
    shared_ray: None,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("factsweep.pipeline.runs.calibration.LIMIT_S", 0.5)
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    assert main(["plan", "--calibrate", *small, *folders]) == 0
    said = capsys.readouterr().out
    assert said.count("measured        ") == 3
    assert "of decoding with 1 replicas" in said
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    (kept,) = (home / "rates").iterdir()
    assert {row["model"] for row in json.loads(kept.read_text())["rows"]} == {"tiny"}
    # The next plan knows it without measuring.
    assert main(["plan", *small, *folders]) == 0
    assert "of decoding with 1 replicas" in capsys.readouterr().out


def test_calibrate_a_replica_over_several_nodes_is_refused(small_settings: Settings) -> None:
    run = small_settings("model.pipeline_parallel=2")
    with pytest.raises(InputError, match=naming("pipeline_parallel=2", "cluster.answers_per_s")):
        list(calibrate(run))

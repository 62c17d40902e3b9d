"""BEAR from its files to the numbers of a run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.plan import build_plan
from tests.operators.datasets.test_bear import files

Settings = Callable[..., Run]


@pytest.fixture
def settings(tmp_path: Path, make_model: Callable[[str], Path]) -> Settings:
    """Loads a run on three instances with three answers each."""
    for name, content in files().items():
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    overrides = [
        "model.source=path",
        "model.name=tiny",
        f"model.id={make_model('tiny')}",
        "benchmark=bear",
        f"benchmark.path={tmp_path}/set",
        "metrics.n_rounds=20",
        f"artifacts={tmp_path}/artifacts",
    ]
    return lambda *more: load([*overrides, *more])


def test_bear_every_answer_of_every_template_is_scored(
    settings: Settings, compute_here: Callable[..., object]
) -> None:
    run = settings("decoding.engine=fake")
    compute_here(run)
    (branch,) = build_plan(run).branches
    assert branch.answers.read_all("scores").height == 3 * 2 * 3
    metrics = branch.metrics.read_all("metrics")
    names = {"bear_score", "accuracy", "consist", "relation_mean", "ties"}
    assert names <= {*metrics["metric"]}
    assert {"template=0", "template=1", "cardinality=1:N"} <= {*metrics["slice"]}


def test_bear_masked_models_are_scored_by_transformers(settings: Settings) -> None:
    run = settings("model.architecture=encoder")
    assert (run.benchmark.method, run.engine.name) == ("bear", "transformers")
    assert run.settings[0].name == "answer-space"
    assert settings("decoding.scorer=vllm").engine.name == "vllm"

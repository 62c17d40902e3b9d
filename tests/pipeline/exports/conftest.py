"""Runs to export: a small one of BELIEF and one of KAMEL, by the fake engine."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import report
from factsweep.pipeline.stages.plan import Plan

Compute = Callable[..., Plan]


def _measured(overrides: list[str], compute_here: Compute, folder: Path) -> Run:
    run = load([*overrides, f"artifacts={folder}/artifacts", f"results={folder}/results"])
    report.write(compute_here(run), {"total": 0})
    return run


@pytest.fixture(scope="module")
def belief_once(
    small: list[str], compute_here: Compute, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    return _measured(small, compute_here, tmp_path_factory.mktemp("belief"))


@pytest.fixture(scope="module")
def kamel_once(
    small: list[str], compute_here: Compute, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    plain = [
        option for option in small if not option.startswith(("benchmark.path", "decoding.samples"))
    ]
    ours = ["benchmark=kamel-mini", "benchmark.relations=[P30,P569,P1412]", "prompt=1-shot"]
    return _measured([*plain, *ours], compute_here, tmp_path_factory.mktemp("kamel"))


def _copied(run: Run, folder: Path) -> Run:
    return replace(run, results=str(shutil.copytree(run.results, folder / "results")))


@pytest.fixture
def belief_run(belief_once: Run, tmp_path: Path) -> Run:
    """The small run of BELIEF, with results that may be changed."""
    return _copied(belief_once, tmp_path)


@pytest.fixture
def kamel_run(kamel_once: Run, tmp_path: Path) -> Run:
    """A small run of KAMEL, with results that may be changed."""
    return _copied(kamel_once, tmp_path)


@pytest.fixture(params=["belief_run", "kamel_run"])
def run(request: pytest.FixtureRequest) -> Run:
    """Each of the two runs."""
    measured: Run = request.getfixturevalue(request.param)
    return measured

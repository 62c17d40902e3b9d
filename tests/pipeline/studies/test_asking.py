"""Which runs of a study go on side by side; what would start them is replaced."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from factsweep.operators.errors import DecodingError, FactsweepError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.execution import share
from factsweep.pipeline.execution.share import Share
from factsweep.pipeline.studies import asking, side_by_side
from factsweep.pipeline.studies.side_by_side import Errors, Piece
from factsweep.pipeline.studies.study import study

FAKE = (
    "model=endpoint",
    "model.endpoint=http://127.0.0.1:9/v1",
    "decoding.engine=fake",
    "prompt=zero-shot",
    "benchmark.relations=[P36,P30]",
    "benchmark.names_per_subject=1",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What was asked side by side, and what alone."""
    found: dict[str, list[str]] = {"together": [], "alone": [], "calls": []}

    def together(pieces: Sequence[Piece]) -> Errors:
        found["calls"].append(str(len(pieces)))
        found["together"] += [each.job.name for each in pieces]
        return {pieces[-1].job.name: DecodingError("it does not load.")}

    def alone(run: Run, _others: object) -> None:
        found["alone"].append(run.name)

    monkeypatch.setattr(side_by_side, "measured", together)
    monkeypatch.setattr(asking, "compute", alone)
    return found


def ask(folder: Path, *overrides: str, **given: Any) -> list[tuple[str, type[FactsweepError]]]:
    where = [f"artifacts={folder}/artifacts", f"results={folder}/results"]
    failed = asking.ask(study("some", [*FAKE, *where, *overrides], **given))
    return [(each.label, type(each.error)) for each in failed]


def test_runs_that_hold_gpus_are_asked_side_by_side(
    tmp_path: Path, asked: dict[str, list[str]]
) -> None:
    models = "model.id=ada,bea,cia"
    assert ask(tmp_path, models, "cluster.device=cuda") == [("bea", DecodingError)]
    assert asked["together"] == ["some/cia", "some/ada", "some/bea"]
    assert not asked["alone"]


@pytest.mark.parametrize(
    "alone",
    [
        ["cluster.device=cpu"],
        ["cluster.device=cuda", "cluster.weights_gib=500"],
        ["cluster=ray", "cluster.device=cuda", "cluster.launch.autoscales=true"],
        ["cluster.device=cuda", "cluster.address=null,'10.0.0.1:6379'"],
    ],
)
def test_runs_without_gpus_of_their_own_are_asked_as_ever(
    tmp_path: Path, asked: dict[str, list[str]], alone: list[str]
) -> None:
    assert not ask(tmp_path, "model.id=ada,bea,cia", *alone)
    assert not asked["together"]
    order = dict.fromkeys(each.removeprefix("some/")[:3] for each in asked["alone"])
    assert list(order) == ["cia", "ada", "bea"]


def test_controls_end_before_the_runs_of_a_budget_begin(
    tmp_path: Path, asked: dict[str, list[str]]
) -> None:
    given = ["model.id=ada,bea,cia,dea", "cluster.device=cuda", "budget=40%"]
    ask(tmp_path, *given, full=2)
    assert asked["together"] == ["some/dea", "some/ada", "some/bea", "some/cia"]
    assert asked["calls"] == ["2", "2"]


def test_run_is_computed_in_its_share_and_recorded_as_it_was_given() -> None:
    run = load([*FAKE, "model.id=ada", "model.replicas.max=8"])
    assert share.placed(run) is run
    with share.given(Share("10.0.0.1:6379", 3)):
        placed = share.placed(run)
    assert placed.cluster.address == "10.0.0.1:6379"
    assert (placed.model.replicas.max, run.model.replicas.max) == (3, 8)
    assert share.placed(run) is run

"""The order in which the runs of a study are computed; nothing is computed here."""

from pathlib import Path
from typing import Any

import pytest

from factsweep.operators.errors import DecodingError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.studies import study as study_module
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
def run_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs in the order in which they were computed, each with its control.

    Those that are asked in full have results; the model `bea` does not load.
    """
    names: list[str] = []

    def compute(run: Run) -> None:
        control = f" by {run.control.removeprefix('some/')[:3]}" if run.control else ""
        names.append(f"{run.name.removeprefix('some/')[:3]}{control}")
        if run.budget is None:
            Path(run.folder).mkdir(parents=True)
            Path(run.folder, "run.json").touch()
        if run.model.id == "bea":
            raise DecodingError("it does not load.")

    monkeypatch.setattr(study_module, "compute", compute)
    monkeypatch.setattr(study_module, "estimate", compute)
    return names


def ask(folder: Path, *overrides: str, **fields: Any) -> list[str]:
    places = [f"artifacts={folder}/artifacts", f"results={folder}/results"]
    failures = study_module.ask_members(study("some", [*FAKE, *places, *overrides], **fields))
    return [failure.label for failure in failures]


def test_study_computes_the_ends_first_and_a_failed_run_ends_nothing_else(
    tmp_path: Path, run_names: list[str]
) -> None:
    assert ask(tmp_path, "model.id=ada,bea,cia") == ["bea"]
    assert run_names == ["cia", "ada", "bea"]


def test_study_computes_controls_before_the_runs_of_a_budget(
    tmp_path: Path, run_names: list[str]
) -> None:
    assert ask(tmp_path, "model.id=ada,bea,cia,dea", "budget=40%", full=2) == ["bea"]
    assert run_names == ["dea", "ada", "bea by ada", "cia by dea"]

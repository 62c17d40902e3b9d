"""What an open artifact has of its inputs stands while their values are the same."""

from pathlib import Path

import polars as pl
import pytest

from factsweep.pipeline.stages.step import check_inputs
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.store import Store
from tests.pipeline.damage import made_anew, pack_otherwise

ROWS = pl.DataFrame({"relation_id": ["P36", "P30"], "label": ["capital", "continent"]})
OTHERS = ROWS[::-1]


@pytest.fixture
def prompts(tmp_path: Path) -> Artifact:
    artifact = Artifact(Store(str(tmp_path)), Recipe("relations", 1, {}))
    artifact.begin()
    made_anew(artifact, ROWS)
    return artifact


@pytest.fixture
def answers(prompts: Artifact) -> Artifact:
    """One that was made of the prompts, and is open."""
    artifact = Artifact(prompts.store, Recipe("relations", 2, {}))
    artifact.begin()
    check_inputs(artifact, [prompts])
    artifact.write("relations", "all", ROWS)
    return artifact


@pytest.fixture
def other_pyarrow(answers: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made from now on has other bytes."""
    assert answers
    pack_otherwise(monkeypatch)


def kept(answers: Artifact, prompts: Artifact) -> bool:
    """Whether the answers stand once a run goes on with them."""
    check_inputs(answers, [prompts])
    return answers.published("relations") == ["all"]


def test_check_inputs_same_bytes_keep_answers(answers: Artifact, prompts: Artifact) -> None:
    made_anew(prompts, ROWS)
    assert kept(answers, prompts)


def test_check_inputs_other_values_do_not(answers: Artifact, prompts: Artifact) -> None:
    made_anew(prompts, OTHERS)
    assert not kept(answers, prompts)


@pytest.mark.usefixtures("other_pyarrow")
def test_check_inputs_of_another_pyarrow_keep_answers_each_time(
    answers: Artifact, prompts: Artifact
) -> None:
    before = prompts.manifest().pin.digest
    made_anew(prompts, ROWS)
    assert prompts.manifest().pin.digest != before
    assert kept(answers, prompts)
    assert kept(answers, prompts)


@pytest.mark.usefixtures("other_pyarrow")
def test_check_inputs_without_a_note_of_values_do_not(answers: Artifact, prompts: Artifact) -> None:
    answers.drop("values_of.json")  # as an older version leaves it
    made_anew(prompts, ROWS)
    assert not kept(answers, prompts)


def test_check_inputs_note_that_a_killed_process_left_behind_keeps_no_answers(
    answers: Artifact, prompts: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It noted that the prompts are others, and not yet which values they have."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    made_anew(prompts, OTHERS)
    with monkeypatch.context() as patch:
        patch.setattr(Artifact, "put_note", killed)
        with pytest.raises(KeyboardInterrupt):
            check_inputs(answers, [prompts])
    answers.write("relations", "all", ROWS)  # answers to the others
    made_anew(prompts, ROWS)
    assert not kept(answers, prompts)

"""What is made of a setting while it is answered: relations once they are whole, bytes as ever."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.execution import ahead as module
from factsweep.pipeline.execution.ahead import Ahead
from factsweep.pipeline.execution.plan import Plan, planned
from factsweep.pipeline.execution.step import took
from factsweep.pipeline.execution.work import finish_all
from factsweep.pipeline.stages.match import Match
from factsweep.pipeline.storage.integrity import set_all_aside
from tests.messages import naming
from tests.pipeline.here import overwrite

LATE = "generations/P36.0001.parquet"


class Answering:
    """The small run when one shard of the answers is not there yet, and nothing is matched."""

    def __init__(self, finished: Plan) -> None:
        (self.branch,) = finished.branches
        self.before = self.made()
        for each in (self.branch.metrics, self.branch.matched):
            set_all_aside(each)
        self._folder = Path(self.branch.answers.store.root) / self.branch.answers.folder
        self._late = (self._folder / LATE).read_bytes()
        for name in (LATE, "manifest.json"):
            (self._folder / name).unlink()
        self.plan = planned(finished.run)
        (self.branch,) = self.plan.branches

    def ends(self) -> None:
        """The last shard is answered."""
        (self._folder / LATE).write_bytes(self._late)
        finish_all(self.plan, {}, self.branch.answers.folder)

    def made(self) -> dict[str, Mapping[str, object]]:
        """What the manifests say of all shards that are made of the answers."""
        (branch,) = (self.branch,)
        return {
            f"{each.folder}/{table}": dict(shards)
            for each in (branch.matched, branch.metrics)
            for table, shards in each.manifest().tables.items()
        }


@pytest.fixture
def answering(finished: Plan) -> Answering:
    return Answering(finished)


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The relations that are read to be matched, by whomever, in their order."""
    found: list[str] = []
    read = Match._read

    def noted(self: Match, relation_id: str) -> object:
        found.append(relation_id)
        return read(self, relation_id)

    monkeypatch.setattr(Match, "_read", noted)
    return found


def test_relation_is_matched_when_it_is_whole_and_published_when_all_are(
    answering: Answering, matched: list[str]
) -> None:
    ahead = Ahead(answering.branch)
    assert not ahead.look({})
    assert not ahead.look({})
    assert matched == ["P30"]  # P36 lacks a shard
    assert answering.branch.matched.shards("answers") == []
    answering.ends()
    assert ahead.look({})
    assert matched == ["P30", "P36"]
    assert answering.made() == answering.before
    for artifact in (answering.branch.matched, answering.branch.metrics):
        assert took(artifact)["core_seconds"] > 0


def test_relation_waits_for_those_that_have_the_same_prompts(
    answering: Answering, matched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "of_same_text", lambda *_: frozenset({"P36"}))
    Ahead(answering.branch).look({})
    assert matched == []


def test_nothing_is_looked_at_before_the_prompts_are_there(
    answering: Answering, matched: list[str]
) -> None:
    set_all_aside(answering.branch.admitted)
    Ahead(answering.branch).look({})
    assert matched == []


def test_relation_that_was_not_looked_at_is_matched_in_the_end(
    answering: Answering, matched: list[str]
) -> None:
    ahead = Ahead(answering.branch)
    ahead.look({})
    answering.ends()
    ahead.publish({})
    assert matched == ["P30", "P36"]
    assert answering.made() == answering.before


def test_answers_that_came_out_otherwise_are_matched_anew(
    answering: Answering, matched: list[str]
) -> None:
    answers = answering.branch.answers
    (shard,) = [each for each in answers.shards("generations") if each.startswith("P30")][:1]
    rows = answers.read("generations", shard)
    overwrite(answers, "generations", shard, rows.with_columns(text=pl.lit("Paris")))
    ahead = Ahead(answering.branch)
    ahead.look({})
    overwrite(answers, "generations", shard, rows)
    answering.ends()
    ahead.publish({})
    assert matched == ["P30", "P30", "P36"]
    made = answering.made()
    assert made == answering.before


def test_damaged_shard_ends_no_run_before_the_step_meets_it(answering: Answering) -> None:
    answers = answering.branch.answers
    shard = next(each for each in answers.shards("generations") if each.startswith("P30"))
    path = Path(answers.store.root) / answers.folder / f"generations/{shard}.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    ahead = Ahead(answering.branch)
    assert not ahead.look({})
    assert not ahead.look({})
    with pytest.raises(DamagedFileError, match=naming(str(path))):
        answering.ends()


def test_setting_that_cannot_be_published_ends_no_run_before_the_last_answer(
    answering: Answering,
) -> None:
    matched = answering.branch.matched
    ahead = Ahead(answering.branch)
    ahead.look({})
    answering.ends()
    (Path(matched.store.root) / matched.folder / "answers").write_text("a file, and no folder")
    assert not ahead.look({})
    assert not ahead.look({})
    with pytest.raises((DamagedFileError, InputError), match=naming(matched.folder)):
        ahead.publish({})

"""verify: problems of a run or of a whole store; test_reads has all kinds of damage."""

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.runs.run import measure_run
from factsweep.pipeline.runs.verify import verify, verify_store
from factsweep.pipeline.stages.plan import Plan, build_plan, sample_plan
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import quarantine
from tests.messages import naming
from tests.pipeline.here import complete, make_here, overwrite

Settings = Callable[..., Run]
Compute = Callable[..., Plan]


def shard_path(artifact: Artifact, table: str = "generations") -> Path:
    return Path(
        artifact.store.where(f"{artifact.folder}/{table}/{artifact.shards(table)[0]}.parquet")
    )


def test_verify_finished_run_is_clean(finished: Plan) -> None:
    checked, problems = verify(finished.run)
    assert problems == []
    assert checked == len([*Path(finished.run.artifacts).rglob("*.parquet")])


def test_verify_unfinished_run_names_what_is_not_complete(small_settings: Settings) -> None:
    checked, problems = verify(small_settings())
    assert checked == 0
    assert [problem.partition(" is ")[2] for problem in problems] == [
        "not complete; run it again."
    ] * 11


def test_verify_prompt_answered_twice_is_counted(finished: Plan) -> None:
    greedy = finished.branches[0].answers
    first, second, *_ = greedy.shards("generations")
    rows = [greedy.read("generations", shard) for shard in (first, second)]
    overwrite(greedy, "generations", second, pl.concat([rows[1], rows[0][:1]]))
    complete(finished, greedy)
    _, problems = verify(finished.run)
    assert any("2 rows share a prompt_id with another" in problem for problem in problems)


@pytest.mark.parametrize("table", ["generations", "samples"])
def test_verify_prompts_without_an_answer_are_counted(finished: Plan, table: str) -> None:
    (branch,) = finished.branches
    artifact = branch.answers if table == "generations" else branch.extra_outputs[2]
    shard = artifact.shards(table)[0]
    overwrite(artifact, table, shard, artifact.read(table, shard)[1:])
    complete(finished, artifact)
    _, problems = verify(finished.run)
    assert any("1 prompts have neither answer nor error" in problem for problem in problems)


def test_verify_refused_prompts_are_no_problem(
    small_settings: Settings, compute_here: Compute
) -> None:
    run = small_settings("model.max_model_len=235")
    compute_here(run)
    assert verify(run)[1] == []


def test_verify_of_a_budget_reads_the_answers_to_its_prompts(small_settings: Settings) -> None:
    few_overrides = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")
    run, larger = (small_settings(*few_overrides, f"budget={share}%") for share in (30, 60))
    make_here(sample_plan(build_plan(run)))
    assert verify(run).problems == []
    for step in sample_plan(build_plan(larger)).steps:
        if step.stage is not None:
            step.run()
    (problem,) = verify(larger).problems
    assert re.search(r"\d+ of \d+ prompts of the budget have neither answer nor error", problem)
    answers = build_plan(run).branches[0].answers
    chunk = next(Path(answers.store.where(answers.folder)).glob("chunks/*/*/*.parquet"))
    chunk.write_bytes(chunk.read_bytes()[:50])
    (problem,) = verify(run).problems
    assert str(chunk) in problem


def test_verify_repair_sets_aside_what_the_next_run_recomputes(finished: Plan) -> None:
    path = shard_path(finished.branches[0].answers)
    path.write_bytes(b"damaged")
    verify(finished.run)
    assert path.read_bytes() == b"damaged"
    assert finished.branches[0].answers.is_complete()
    verify(finished.run, repair=True)
    assert not path.exists()
    measure_run(finished.run, make_here)
    assert verify(finished.run)[1] == []


@pytest.mark.parametrize("note", ["anew", "values_of", "made_of"])
def test_verify_leaves_answers_beside_a_damaged_note_of_an_earlier_version(
    finished: Plan, note: str
) -> None:
    greedy = finished.branches[0].answers
    name = f"{greedy.folder}/{note}.json"
    greedy.store.put(name, b"cut")
    assert verify_store(finished.run.artifacts, repair=True).problems == []
    quarantine(greedy, name)
    assert greedy.list_published("generations") == greedy.shards("generations")


def test_verify_of_a_store_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("nowhere", "holds", "say")):
        verify_store(str(tmp_path / "nowhere"))

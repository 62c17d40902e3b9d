"""status and verify: what is there, and what is wrong with it."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from operators.engines.fake import FakeEngine
from pipeline.config.settings import Run
from pipeline.execution.plan import Plan
from pipeline.execution.status import status, verify
from pipeline.storage.artifact import Artifact

Settings = Callable[..., Run]
Compute = Callable[..., Plan]
STAGES = [
    "facts",
    "prompts",
    "admitted",
    "generations",
    "canary",
    *["samples"] * 4,
    "matched",
    "metrics",
]


def states(run: Run) -> dict[str, str]:
    """Stage → its state; of several artifacts of a stage the last."""
    lines = [line.split(maxsplit=2) for line in status(run) if line.startswith("  ")]
    return {stage: state for stage, _, state in lines}


def dies_at(n_answers: int) -> FakeEngine:
    """An engine that dies before this answer."""
    told: list[str] = []

    def witness(prompt_id: str) -> None:
        told.append(prompt_id)
        if len(told) > n_answers:
            raise RuntimeError("the engine died")

    return FakeEngine(witness=witness)


def shard_path(artifact: Artifact, table: str = "generations") -> Path:
    return Path(
        artifact.store.where(f"{artifact.folder}/{table}/{artifact.shards(table)[0]}.parquet")
    )


def test_status_nothing_there_is_missing(small_settings: Settings) -> None:
    setting, *lines = status(small_settings())
    assert setting == "4-template"
    assert [line.split()[0] for line in lines] == STAGES
    assert all(line.endswith("missing") for line in lines)


def test_status_finished_run_is_done(finished: Plan) -> None:
    assert set(states(finished.run).values()) == {"done"}


def test_status_prompts_there_says_what_is_to_decode(
    finished: Plan, small_settings: Settings
) -> None:
    found = states(small_settings("decoding.max_tokens=9"))
    assert (found["prompts"], found["admitted"]) == ("done", "missing")
    assert found["generations"] == "missing: 6 shards, 72 prompts"


def test_status_killed_run_is_partial(small_settings: Settings, compute_here: Compute) -> None:
    with pytest.raises(RuntimeError):
        compute_here(small_settings(), dies_at(30))
    found = states(small_settings())
    partial = "partial: 1 of 6 shards · 26 of 72 prompts · 0 errors · an engine: "
    assert found["generations"].startswith(partial)
    assert found["generations"].endswith(" tokens/s, 0% cached")
    assert found["matched"] == "missing"


def test_verify_finished_run_is_clean(finished: Plan) -> None:
    checked, problems = verify(finished.run)
    assert problems == []
    assert checked == len([*Path(finished.run.artifacts).rglob("*.parquet")])


def test_verify_unfinished_run_names_what_is_not_complete(small_settings: Settings) -> None:
    checked, problems = verify(small_settings())
    assert checked == 0
    assert [problem.partition(" is ")[2] for problem in problems] == [
        "not complete; run it again."
    ] * len(STAGES)


def test_verify_missing_shard_is_named(finished: Plan) -> None:
    path = shard_path(finished.branches[0].answers)
    path.unlink()
    _, problems = verify(finished.run)
    assert any(problem.startswith(f"{path} is gone") for problem in problems)


def test_verify_truncated_shard_is_named(finished: Plan) -> None:
    path = shard_path(finished.branches[0].answers)
    path.write_bytes(path.read_bytes()[:-50])
    _, problems = verify(finished.run)
    assert any(problem.startswith(f"{path} is not a whole Parquet file") for problem in problems)


@pytest.mark.parametrize("table", ["pairs", "prompts", "errors", "samples", "answers", "metrics"])
def test_verify_truncated_shard_of_any_stage_is_named(finished: Plan, table: str) -> None:
    artifacts = finished.branches[0].artifacts()
    artifact = next(each for each in artifacts if each.shards(table))
    path = shard_path(artifact, table)
    path.write_bytes(path.read_bytes()[:100])
    _, problems = verify(finished.run)
    assert any(problem.startswith(f"{path} is not a whole Parquet file") for problem in problems)


def test_verify_shard_of_another_artifact_is_named(
    finished: Plan, small_settings: Settings, compute_here: Compute
) -> None:
    (other,) = compute_here(small_settings("decoding.max_tokens=9")).branches
    path = shard_path(finished.branches[0].answers)
    path.write_bytes(shard_path(other.answers).read_bytes())
    _, problems = verify(finished.run)
    assert any(problem.startswith(f"{path} belongs elsewhere") for problem in problems)


def test_verify_whole_shard_with_other_content_is_named(finished: Plan) -> None:
    greedy = finished.branches[0].answers
    shard = greedy.shards("generations")[0]
    changed = greedy.read("generations", shard).with_columns(text=pl.lit("Paris"))
    greedy.write("generations", shard, changed)
    _, problems = verify(finished.run)
    assert [p.partition(" is ")[2] for p in problems] == [
        "not what the manifest says (SHA-256); set it aside."
    ]


def test_verify_prompt_answered_twice_is_counted(finished: Plan) -> None:
    greedy = finished.branches[0].answers
    first, second, *_ = greedy.shards("generations")
    rows = [greedy.read("generations", shard) for shard in (first, second)]
    greedy.write("generations", second, pl.concat([rows[1], rows[0][:1]]))
    greedy.finish(["generations", "errors"])
    _, problems = verify(finished.run)
    assert any("2 rows share a prompt_id with another." in problem for problem in problems)


def test_verify_prompt_without_an_answer_is_counted(finished: Plan) -> None:
    greedy = finished.branches[0].answers
    shard = greedy.shards("generations")[0]
    greedy.write("generations", shard, greedy.read("generations", shard)[2:])
    greedy.finish(["generations", "errors"])
    _, problems = verify(finished.run)
    assert any("2 prompts have neither answer nor error." in problem for problem in problems)


def test_verify_sampled_prompt_without_samples_is_counted(finished: Plan) -> None:
    block = finished.branches[0].further[2]
    shard = block.shards("samples")[0]
    block.write("samples", shard, block.read("samples", shard)[1:])
    block.finish(["samples", "errors"])
    _, problems = verify(finished.run)
    assert any("1 prompts have neither answer nor error." in problem for problem in problems)


def test_verify_refused_prompts_are_no_problem(
    small_settings: Settings, compute_here: Compute
) -> None:
    run = small_settings("model.max_model_len=235")
    compute_here(run)
    assert verify(run)[1] == []


def test_verify_repair_sets_aside_what_the_next_run_recomputes(
    finished: Plan, compute_here: Compute
) -> None:
    path = shard_path(finished.branches[0].answers)
    path.write_bytes(b"damaged")
    verify(finished.run, repair=True)
    assert not path.exists()
    compute_here(finished.run)
    assert verify(finished.run)[1] == []


def test_verify_without_repair_touches_nothing(finished: Plan) -> None:
    path = shard_path(finished.branches[0].answers)
    path.write_bytes(b"damaged")
    verify(finished.run)
    assert path.read_bytes() == b"damaged"
    assert finished.branches[0].answers.is_complete()

"""status: what is there."""

from collections.abc import Callable

import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.runs.status import status
from factsweep.pipeline.stages.plan import Plan, planned, sampled
from tests.pipeline.here import make_here

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


def test_status_of_a_budget_is_of_its_prompts(small_settings: Settings) -> None:
    few = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "cluster.rows_per_chunk=1")
    run = small_settings(*few, "budget=50%")
    assert states(run)["generations"] == "missing"
    with pytest.raises(RuntimeError):
        make_here(sampled(planned(run)), dies_at(20))
    assert states(run)["generations"].startswith("partial: 20 of 34 prompts of the budget in ")
    make_here(sampled(planned(run)))
    found = states(run)
    assert found["generations"].startswith("done: 34 of 34 prompts of the budget in ")
    assert list(found) == ["facts", "prompts", "chosen", "admitted", "generations"]

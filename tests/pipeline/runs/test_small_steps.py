"""Steps of few prompts are made in the driver; without answers to decode, Ray is not started."""

from collections.abc import Callable

import pytest

from factsweep.pipeline.cluster import ray_cluster
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.runs import small_steps
from factsweep.pipeline.runs.run import compute
from factsweep.pipeline.runs.small_steps import is_small, make_small_steps
from factsweep.pipeline.stages.plan import Plan, build_plan


def complete_stages(plan: Plan) -> list[str]:
    return [step.artifact.stage for step in plan.steps if step.artifact.is_complete()]


@pytest.mark.parametrize(
    ("most", "stages"),
    [
        (small_steps.MOST, ["facts", "prompts", "admitted", "prompts", "admitted"]),
        (0, ["facts"]),
    ],
)
def test_steps_before_the_answers_are_made_if_all_settings_have_few_prompts(
    small_settings: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    stages: list[str],
) -> None:
    monkeypatch.setattr(small_steps, "MOST", most)
    plan = build_plan(small_settings("sweep.prompts=[zero-shot,4-template]"))
    assert not is_small(plan)  # before its facts are read
    make_small_steps(plan, {})
    assert complete_stages(plan) == stages
    assert is_small(plan) == (most > 0)


def test_answers_are_measured_again_without_ray(
    finished: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    (branch,) = finished.branches
    for artifact in (branch.matched, branch.metrics):
        artifact.store.drop(f"{artifact.folder}/manifest.json")
        artifact.forget()
    monkeypatch.setattr(ray_cluster, "start_ray", None)
    compute(finished)
    assert finished.is_complete()


def test_all_prompts_of_all_settings_count(
    small_settings: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (
        build_plan(small_settings(f"sweep.prompts=[{names}]"))
        for names in ("zero-shot", "zero-shot,4-template")
    )
    make_small_steps(one, {})
    n_prompts = sum(one.branches[0].prompts.rows("prompts").values())
    monkeypatch.setattr(small_steps, "MOST", n_prompts + 1)
    assert (is_small(one), is_small(two)) == (True, False)

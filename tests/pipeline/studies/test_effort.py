"""How long runs are taken to need: measured, given, or guessed from their size."""

from collections.abc import Callable
from pathlib import Path

import pytest

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.costs import forecast
from factsweep.pipeline.execution.plan import Plan, planned
from factsweep.pipeline.studies import effort
from tests.pipeline.studies.test_asking import FAKE

Planned = Callable[..., Plan]


@pytest.fixture
def plan(tmp_path: Path) -> Planned:
    """Plans of fake models in one store, on GPUs that are claimed."""

    def made(name: str, *overrides: str) -> Plan:
        where = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
        own = [f"model.id={name}", "cluster.device=cuda", "decoding.canary_prompts=0"]
        samples = "decoding.samples.n_prompts=0"
        return planned(load([*FAKE, *where, *own, samples, *overrides]))

    return made


def test_model_that_was_never_measured_takes_as_long_as_its_size_says(
    plan: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    expanded = forecast.forecast

    def once(run: object, *, tokens: bool) -> object:
        counted.append(run)
        return expanded(run, tokens=tokens)  # type: ignore[arg-type]

    monkeypatch.setattr(effort, "forecast", once)
    small = plan("ada", "model.billions_of_parameters=1", "model.replicas.max=8")
    large = plan("bea", "model.billions_of_parameters=70", "model.tensor_parallel=4")
    first, second = effort.jobs({"small": [small], "large": [large]})
    assert len(counted) == 1  # both are asked the same prompts
    assert (first.gpus, second.gpus) == (1, 4)
    assert second.size == pytest.approx(70 * first.size)
    assert second.seconds == pytest.approx(70 * first.seconds / 4)
    assert second.loads_s > first.loads_s
    assert first.most == 2  # shards: more engines would have nothing to do


def test_known_rate_is_taken_and_is_the_scale_of_the_others(plan: Planned) -> None:
    known = plan("ada", "model.billions_of_parameters=2", "cluster.answers_per_s=10")
    other = plan("bea", "model.billions_of_parameters=6")
    beside = plan("cia", "model.billions_of_parameters=6")
    first, second = effort.jobs({"known": [known], "others": [other, beside]})
    assert first.seconds == pytest.approx(600 / 10)
    assert second.seconds == pytest.approx(
        2 * 3 * first.seconds
    )  # two runs of three times the size


def test_engines_that_share_a_gpu_need_a_part_of_it(plan: Planned) -> None:
    (job,) = effort.jobs({"ada": [plan("ada", "model.replicas.per_gpu=4")]})
    assert job.gpus == 0.25


def test_what_is_answered_takes_no_more_time(plan: Planned) -> None:
    whole = plan("ada", "cluster.answers_per_s=10")
    (before,) = effort.jobs({"ada": [whole]})
    branch = whole.branches[0]
    for artifact in (branch.facts, branch.prompts, branch.admitted):
        branch.step(artifact).run()
    (now,) = effort.jobs({"ada": [whole]})
    assert now.seconds == before.seconds
    assert now.most == before.most

"""What engines are handed: the settings in their order, each as soon as its prompts are there."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import ray

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster import one_machine
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import cause
from factsweep.pipeline.decoding.queue import Queue, Shard
from factsweep.pipeline.decoding.tally import tally_actor
from factsweep.pipeline.stages.plan import Plan, planned

SETTINGS = "sweep.prompts=[zero-shot,4-template]"


@pytest.fixture(autouse=True)
def _as_in_a_run() -> None:
    """This process asks for no more actors than that of a run does: others look for them."""
    one_machine.prepare()


@pytest.fixture
def written(small_settings: Callable[..., Run]) -> Plan:
    """Two settings whose prompts are there."""
    plan = planned(small_settings(SETTINGS))
    for step in plan.steps:
        if step.artifact.stage in ("facts", "prompts", "admitted"):
            step.run()
    return plan


@ray.remote(num_cpus=0)
def comes(when: Path, *, fails: bool = False) -> None:
    """The prompts of a setting are there once a file is."""
    while not when.exists():
        time.sleep(0.05)
    if fails:
        raise InputError("a template without [X]")


def queue(plan: Plan, second: Any) -> tuple[Queue, Any]:
    tally = tally_actor(plan.run.cluster)
    return Queue(plan, tally, {}, [ray.put(None), second]), tally


def settings(plan: Plan, shards: Iterator[Shard]) -> list[int]:
    """Which setting each shard is of."""
    prompts = [branch.prompts for branch in plan.branches]
    return [prompts.index(shard["work"].prompts) for shard in shards]


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_setting_is_handed_out_while_another_is_written(written: Plan, tmp_path: Path) -> None:
    second = tmp_path / "second"
    handed, tally = queue(written, comes.remote(second))
    first = handed.first()
    assert set(settings(written, iter(first))) == {0}
    assert handed.expected(first) == 2 * len(first)
    assert ray.get(tally.read.remote())[0]["to_come"] == 1
    rows = iter(handed.rows(first).iter_rows())
    assert settings(written, islice(rows, len(first) - 1)) == [0] * (len(first) - 1)
    second.touch()
    last, *rest = rows  # Ray Data holds one back
    assert settings(written, iter([last])) == [0]
    assert set(settings(written, iter(rest))) == {1}
    for shard in (*first, *rest):
        alike = [one for one in (*first, *rest) if one["work"].artifact == shard["work"].artifact]
        assert shard["of"] == len(alike)
    counts, _ = ray.get(tally.read.remote())
    assert (counts["to_come"], counts["all_shards"]) == (0, len(first) + len(rest))


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_setting_that_cannot_be_written_is_our_error(written: Plan, tmp_path: Path) -> None:
    second = tmp_path / "second"
    handed, _ = queue(written, comes.remote(second, fails=True))
    rows = handed.rows(handed.first()).iter_rows()
    second.touch()
    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        list(rows)
    assert isinstance(cause.of_task(caught.value), InputError)

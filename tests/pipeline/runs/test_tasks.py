"""tasks: an artifact's parts are shared out to the cores, and come out the same."""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import InputError
from factsweep.pipeline.runs.tasks import Tasks, shares
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.stages.step import check_planned, took
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import set_all_aside
from tests.messages import naming

Parts = Callable[[Sequence[str]], None]


def begun_anew(artifact: Artifact) -> None:
    """Leave the recipe of an artifact and nothing else."""
    artifact.store.drop(f"{artifact.folder}/manifest.json")
    artifact.store.drop(f"{artifact.folder}/cost.json")
    set_all_aside(artifact)
    artifact.forget()


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_tasks_make_the_same_bytes_and_hand_errors_on(finished: Plan) -> None:
    (branch,) = finished.branches
    step, matched = branch.step(branch.matched), branch.matched
    before = matched.manifest().tables
    begun_anew(matched)

    another = partial(check_planned, {"pipeline": "another"}, matched)
    with pytest.raises(InputError, match=naming("differs from the machine that planned")):
        step.run(None, Tasks(another, fewest=0))
    assert not matched.is_complete()

    tasks = Tasks(step.check, fewest=0)
    step.run(None, tasks)
    assert matched.manifest().tables == before
    assert took(matched)["core_seconds"] > tasks.core_seconds > 0


def shared_out(sharing: Tasks) -> list[list[str]]:
    """What each call in this process is given."""
    made: list[list[str]] = []
    sharing(lambda parts: made.append(list(parts)), {"P30": 70_000, "P36": 80_000})
    return made


def refused(*_: object, **__: object) -> None:
    pytest.fail("a task was started")


def test_tasks_little_work_stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "remote", refused)
    assert shared_out(Tasks(refused)) == [["P30", "P36"]]


def test_tasks_one_core_stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "remote", refused)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 1.0})
    assert shared_out(Tasks(refused, fewest=0)) == [["P30", "P36"]]


def test_tasks_interrupted_cancels_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    started, cancelled = [], list[str]()

    def start(_check: object, _work: object, share: list[str]) -> str:
        started.append(share)
        return f"task {len(started)}"

    monkeypatch.setattr(ray, "remote", lambda **_: lambda _: SimpleNamespace(remote=start))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0})
    monkeypatch.setattr(ray, "wait", interrupted)
    monkeypatch.setattr(ray, "cancel", cancelled.append)
    with pytest.raises(KeyboardInterrupt):
        shared_out(Tasks(refused, fewest=0))
    assert started == [["P36"], ["P30"]]
    assert cancelled == ["task 1", "task 2"]


@given(st.lists(st.integers(0, 10**6)), st.integers(1, 9))
def test_shares_hold_each_part_once_and_no_share_is_far_larger(sizes: list[int], n: int) -> None:
    parts = {f"P{number}": size for number, size in enumerate(sizes)}
    found = shares(parts, n)
    assert len(found) <= n
    assert sorted(part for share in found for part in share) == sorted(parts)
    summed = [sum(parts[part] for part in share) for share in found]
    assert max(summed, default=0) <= sum(parts.values()) / n + max(parts.values(), default=0)

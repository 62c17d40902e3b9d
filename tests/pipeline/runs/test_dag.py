"""Settings are measured as soon as they are answered; Ray is replaced by a fake."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import DecodingError, InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.progress_counter import count_refused, tally_actor
from factsweep.pipeline.runs import run_tasks as dag
from factsweep.pipeline.runs.run_tasks import Tasks, shares
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.stages.step import check_planned, read_cost
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import quarantine_all
from tests.messages import naming

Rounds = Sequence[Callable[[], None]]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rounds], None]:
    """Run one function per look at the engines; they are done at the last look."""

    def set_rounds(rounds: Rounds) -> None:
        waiting_rounds = list(rounds)

        def wait(futures: list[Any], **_: float) -> tuple[list[Any], list[Any]]:
            waiting_rounds.pop(0)()
            return ([], futures) if waiting_rounds else (futures, [])

        monkeypatch.setattr(ray, "wait", wait)
        monkeypatch.setattr(ray, "get", lambda futures: futures)

    return set_rounds


def branch_of(names: list[str], name: str, is_answered: Callable[[], bool]) -> Any:
    """A setting that writes down when it is matched and measured."""

    def step(artifact: Any) -> Any:
        run = lambda *_: names.append(f"{artifact.folder} {name}")  # noqa: E731
        return SimpleNamespace(run=run, check=None)

    artifacts = {key: SimpleNamespace(folder=key) for key in ("matched", "metrics")}
    answers = [SimpleNamespace(is_complete=is_answered)]
    return SimpleNamespace(**artifacts, step=step, list_outputs=lambda: answers)


def test_measure_each_setting_is_measured_when_its_own_answers_are_complete(
    answering: Callable[[Rounds], None],
) -> None:
    names, complete = list[str](), set[str]()
    branches = [branch_of(names, n, lambda n=n: n in complete) for n in ("first", "second")]
    answering(
        [
            lambda: names.append("nothing"),
            lambda: complete.add("second"),
            lambda: names.append("engines done"),
        ]
    )
    dag.measure(branches, {}, ["future"])
    second = ["matched second", "metrics second"]
    first = ["matched first", "metrics first"]
    assert names == ["nothing", *second, "engines done", *first]


def test_measure_damaged_answers_end_the_run_only_after_the_last_answer(
    finished: Plan, answering: Callable[[Rounds], None]
) -> None:
    (branch,) = finished.branches
    for artifact in (branch.metrics, branch.matched):
        quarantine_all(artifact)
    shard = branch.answers.shards("generations")[0]
    path = Path(branch.answers.store.root) / branch.answers.folder / f"generations/{shard}.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    rounds = list[str]()
    never = branch_of([], "never", lambda: len(rounds) > 2)
    answering([lambda: rounds.append("look")] * 4)
    with pytest.raises(InputError, match=naming(str(path))):
        dag.measure([branch, never], {}, ["future"])
    assert len(rounds) == 3


def test_measure_engines_that_fail_end_it_at_once(
    finished: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise DecodingError("no engine loads.")

    monkeypatch.setattr(ray, "wait", lambda futures, **_: (futures, []))
    monkeypatch.setattr(ray, "get", fail)
    with pytest.raises(DecodingError):
        dag.measure(finished.branches, {}, ["future"])


Parts = Callable[[Sequence[str]], None]


def begun_anew(artifact: Artifact) -> None:
    """Leave the recipe of an artifact and nothing else."""
    artifact.store.drop(f"{artifact.folder}/manifest.json")
    artifact.store.drop(f"{artifact.folder}/cost.json")
    quarantine_all(artifact)
    artifact.forget()


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_tasks_make_the_same_bytes_and_hand_errors_on(finished: Plan) -> None:
    (branch,) = finished.branches
    step, matched = branch.step(branch.matched), branch.matched
    tables_before = matched.manifest().tables
    begun_anew(matched)

    another = partial(check_planned, {"pipeline": "another"}, matched)
    with pytest.raises(InputError, match=naming("differs from the machine that planned")):
        step.run(None, Tasks(another, fewest=0))
    assert not matched.is_complete()

    tasks = Tasks(step.check, fewest=0)
    step.run(None, tasks)
    assert matched.manifest().tables == tables_before
    assert read_cost(matched)["core_seconds"] > tasks.core_seconds > 0


def shared_out(sharing: Tasks) -> list[list[str]]:
    """What each call in this process is given."""
    calls: list[list[str]] = []
    sharing(lambda parts: calls.append(list(parts)), {"P30": 70_000, "P36": 80_000})
    return calls


def refused(*_: object, **__: object) -> None:
    pytest.fail("a task was started")


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_requests_that_a_store_refuses_are_counted_in_all_processes(
    small_settings: Callable[..., Run],
) -> None:
    tally = tally_actor(small_settings().cluster)
    report = partial(count_refused, tally)
    ray.get([ray.remote(dag._count_refused_requests).remote(report, refuse_once) for _ in range(2)])
    dag._count_refused_requests(report, refuse_once)
    dag.REFUSED.report = None
    deadline = time.monotonic() + 30  # a count may come after its task has ended
    while (count := ray.get(tally.read.remote())[0]["store_refused"]) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert count == 3


def refuse_once() -> None:
    dag.REFUSED.add()


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

    def start(*arguments: Any) -> str:
        started.append(arguments[-1])
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
    names = shares(parts, n)
    assert len(names) <= n
    assert sorted(part for share in names for part in share) == sorted(parts)
    summed = [sum(parts[part] for part in share) for share in names]
    assert max(summed, default=0) <= sum(parts.values()) / n + max(parts.values(), default=0)


def test_complete_steps_get_no_task(prepared: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "remote", None)
    (branch,) = prepared.branches
    graph = dag._Graph(prepared, {}, None)
    steps = [branch.step(artifact) for artifact in (branch.facts, branch.prompts, branch.admitted)]
    assert graph.unfinished(steps) == []
    with pytest.raises(TypeError):
        graph.unfinished([branch.step(branch.matched)])

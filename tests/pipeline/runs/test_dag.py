"""Settings are measured as soon as they are answered; what ends the answering is replaced."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from factsweep.operators.errors import DecodingError, InputError
from factsweep.pipeline.runs import dag
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.integrity import set_all_aside
from tests.messages import naming

Rounds = Sequence[Callable[[], None]]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rounds], None]:
    """Run one function per look at the engines; they are done at the last look."""

    def set_rounds(rounds: Rounds) -> None:
        left = list(rounds)

        def wait(futures: list[Any], **_: float) -> tuple[list[Any], list[Any]]:
            left.pop(0)()
            return ([], futures) if left else (futures, [])

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
    return SimpleNamespace(**artifacts, step=step, answered=lambda: answers)


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
        set_all_aside(artifact)
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

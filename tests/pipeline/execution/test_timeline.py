"""What engines did when, by a clock that is turned by hand."""

import pytest

from factsweep.pipeline.execution import tally
from factsweep.pipeline.execution.tally import Timeline

Span = tuple[str, str, float, float]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(tally.time, "time", lambda: now[0])
    return now


def told(found: Timeline) -> list[Span]:
    return [(s["engine"], s["doing"], s["began"], s["ended"]) for s in found.spans()]


def test_engine_loads_answers_and_waits(clock: list[float]) -> None:
    found = Timeline()
    found.born("e", "node", ["0", "1"])
    clock[0] = 5
    found.begun("e", "first")
    clock[0] = 8
    found.begun("e", "second")  # the first is published meanwhile
    clock[0] = 9
    found.published("e", "first")
    assert told(found)[-1] == ("e", "answering", 5, 9)  # it goes on
    clock[0] = 12
    found.published("e", "second")
    clock[0] = 20
    assert told(found) == [("e", "loading", 0, 5), ("e", "answering", 5, 12)]
    assert found.spans()[0]["gpus"] == ["0", "1"]


def test_shard_of_a_dead_engine_is_that_of_the_one_that_takes_it(clock: list[float]) -> None:
    found = Timeline()
    for engine in ("e", "f"):
        found.born(engine, "node", ["0"])
    clock[0] = 1
    found.begun("e", "shard")
    clock[0] = 4
    found.begun("f", "shard")
    clock[0] = 6
    found.born("e", "node", ["0"])  # another in its place
    clock[0] = 7
    found.ended("f")
    assert ("e", "answering", 1, 4) in told(found)
    assert ("f", "answering", 4, 7) in told(found)
    assert told(found)[-1] == ("e", "loading", 6, 7)


def test_engine_without_gpus_is_not_noted(clock: list[float]) -> None:
    found = Timeline()
    found.born("e", "node", [])
    clock[0] = 1
    found.begun("e", "shard")
    found.published("e", "shard")
    found.ended("e")
    assert not found.spans()

"""Watching a run: what its pulse says, its first answers, and how it ends."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from factsweep.operators.errors import DecodingError, StoppedError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import logs as meters
from factsweep.pipeline.machine.logs import Meter
from factsweep.pipeline.runs import pulse, watch
from factsweep.pipeline.runs.run import measured
from factsweep.pipeline.stages.plan import Plan, planned
from tests.pipeline.here import make_here

Settings = Callable[..., Run]
COUNTS = {
    "all_shards": 4.0,
    "all_answers": 70.0,
    "shards": 1.0,
    "started": 1.0,
    "engines": 1.0,
    "errors": 2.0,
    "prompt_tokens": 90.0,
    "cached_tokens": 45.0,
    "output_tokens": 12.0,
}


class Clock:
    """A clock that only sleeping moves; each time something happens."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.now = 0.0
        self.events = list(events)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds
        assert self.events, "it watches for ever"
        self.events.pop(0)()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is printed."""
    monkeypatch.setattr(meters, "PLAIN_EVERY_S", 0.0)


def watched(settings: Run, *events: Callable[[], object]) -> int:
    with Meter(settings.name) as meter:
        return watch.watch(settings, meter, Clock(*events))


def running(settings: Run, answers: int) -> Callable[[], None]:
    counts = {**COUNTS, "decoded": float(answers), "answers": float(answers)}
    return lambda: pulse.write(settings, "running", counts)


def test_watch_shows_rates_engines_shards_errors_and_the_end(
    small_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = small_settings()

    def end() -> None:
        make_here(planned(settings))
        pulse.write(settings, "done")

    steps = [running(settings, 10), running(settings, 20), running(settings, 40), end]
    assert watched(settings, *steps) == 0
    said = capsys.readouterr().err
    assert f"{settings.name}: not begun yet" in said
    assert "10/70 answers · 1/4 shards · 2 errors · waiting for the first answers" in said
    assert "20/70 answers · 1/4 shards · 2 errors · 5.0 answers/s" in said
    assert "· 1 engine" in said
    assert said.rstrip().endswith(f"done; results in {settings.results}/{settings.name}")


def test_watch_shows_a_few_first_answers_with_their_prompts(
    small_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = small_settings()
    running(settings, 10)()

    def answer() -> None:
        plan = planned(settings)
        make_here(plan)
        running(settings, 60)()

    assert watched(settings, answer, lambda: pulse.write(settings, "done")) == 0
    shown = [line for line in capsys.readouterr().err.splitlines() if " → " in line]
    assert len(shown) == watch._SHOWN
    assert all(re.search(r"INFO 4-template: '….{40}' → ", line) for line in shown)


@pytest.mark.parametrize(("error", "state"), [(DecodingError, "failed"), (StoppedError, "stopped")])
def test_watch_ends_with_the_run_and_its_reason(
    small_settings: Settings, capsys: pytest.CaptureFixture[str], error: type[Exception], state: str
) -> None:
    settings = small_settings()

    def fail(_: Plan) -> None:
        running(settings, 10)()
        raise error("no engine was ready")

    with pytest.raises(error):
        measured(settings, fail)
    assert watched(settings) == 1
    said = capsys.readouterr().err
    assert f"{settings.name}: {state} at 20" in said
    assert "no engine was ready; log: " in said


def test_watch_run_that_says_nothing_for_long_is_told(
    small_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = small_settings()
    running(settings, 10)()
    quiet = [lambda: None] * 31
    watched(settings, *quiet, lambda: pulse.write(settings, "failed"))
    assert f"no sign of process {os.getpid()} on " in capsys.readouterr().err


def test_watch_finished_run_is_done_at_once(
    finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watched(finished.run) == 0
    assert "done; results in " in capsys.readouterr().err


def test_pulse_damaged_is_none(small_settings: Settings) -> None:
    settings = small_settings()
    running(settings, 1)()
    path = Path(settings.results) / settings.name / pulse.NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": 1}))
    assert pulse.read(settings) is None


def test_status_watch_interrupted_is_130_without_a_word(
    finished: Plan, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "watch", interrupted)
    places = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    assert main(["status", "--watch", *small, *places]) == 130

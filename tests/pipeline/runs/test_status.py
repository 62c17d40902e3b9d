"""status: the state of artifacts, the pulse of a run, and its end."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.errors import DecodingError, StoppedError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import logs as meters
from factsweep.pipeline.machine.logs import Meter
from factsweep.pipeline.results import run_record
from factsweep.pipeline.runs import run_files
from factsweep.pipeline.runs import status as watching
from factsweep.pipeline.runs.run import measure_run
from factsweep.pipeline.runs.status import status
from factsweep.pipeline.stages.plan import Plan, build_plan, sample_plan
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
    answered_ids: list[str] = []

    def witness(prompt_id: str) -> None:
        answered_ids.append(prompt_id)
        if len(answered_ids) > n_answers:
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
    by_stage = states(small_settings("decoding.max_tokens=9"))
    assert (by_stage["prompts"], by_stage["admitted"]) == ("done", "missing")
    assert by_stage["generations"] == "missing: 6 shards, 72 prompts"


def test_status_killed_run_is_partial(small_settings: Settings, compute_here: Compute) -> None:
    with pytest.raises(RuntimeError):
        compute_here(small_settings(), dies_at(30))
    by_stage = states(small_settings())
    partial = "partial: 1 of 6 shards · 26 of 72 prompts · 0 errors · an engine: "
    assert by_stage["generations"].startswith(partial)
    assert by_stage["generations"].endswith(" tokens/s, 0% cached")
    assert by_stage["matched"] == "missing"


def test_status_of_a_budget_is_of_its_prompts(small_settings: Settings) -> None:
    few_overrides = (
        "decoding.samples.n_prompts=0",
        "decoding.canary_prompts=0",
        "cluster.rows_per_chunk=1",
    )
    run = small_settings(*few_overrides, "budget=50%")
    assert states(run)["generations"] == "missing: its prompts are not chosen yet"
    with pytest.raises(RuntimeError):
        make_here(sample_plan(build_plan(run)), dies_at(20))
    assert states(run)["generations"].startswith("partial: 20 of 34 prompts of the budget in ")
    make_here(sample_plan(build_plan(run)))
    by_stage = states(run)
    assert by_stage["generations"].startswith("done: 34 of 34 prompts of the budget in ")
    assert list(by_stage) == ["facts", "prompts", "chosen", "admitted", "generations"]
    other_part = states(small_settings(*few_overrides, "budget=50%", "sample_seed=3"))
    assert other_part["generations"] == "missing: its prompts are not chosen yet"


def status_by_name(results: str, *words: str) -> int:
    return main(["status", *words, f"results={results}"])


@pytest.mark.parametrize("root", ["{}/results", "memory:/{}/results"], ids=["folder", "memory"])
def test_status_by_name_is_of_the_run_that_began_last_and_tells_its_death(
    root: str, small_settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = root.format(tmp_path)
    words = ["run_name=mine", f"results={results}"]
    run_files.write_pulse(build_plan(small_settings(*words, "budget=50%")).run, "done")
    run = build_plan(small_settings(*words)).run
    running(run, 10)()
    assert status_by_name(results, "mine") == status_by_name(results, "run_name=mine") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"run mine: running, process {os.getpid()} on ")
    assert [line.split()[0] for line in lines[2 : 2 + len(STAGES)]] == STAGES
    pulse = run_files.read_pulse(run)
    assert pulse is not None
    with subprocess.Popen(["true"]) as process:
        process.wait()
    run_files.put_pulse(run, replace(pulse, pid=process.pid, started="0"))
    assert status_by_name(results, "mine") == 0
    assert f"run mine: dead: process {process.pid} on " in capsys.readouterr().out
    assert watched(run) == 1
    assert "ended without a word" in capsys.readouterr().err
    running(small_settings(*words, "seed=1"), 10)()  # of another run that took the name
    assert not next(status(run)).startswith("run ")


def test_status_of_a_night_is_of_its_runs_and_a_misspelt_name_is_told(
    small_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a b", "c"):
        run = small_settings(f"run_name=demo-2026-11-20/{name}")
        running(run, 10)()
    assert status_by_name(run.results, "demo-2026-11-20/") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines if line.startswith("run ")] == [
        "run demo-2026-11-20/a b",
        "run demo-2026-11-20/c",
    ]
    assert main(["plan", "demo-2026-11-20", f"results={run.results}"]) == 2
    assert "several runs; plan one of demo-2026-11-20/a b, demo" in capsys.readouterr().err
    assert status_by_name(run.results, "demo-2026-11-20/d") == 2
    assert "Did you mean demo-2026-11-20/" in capsys.readouterr().err


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
        return watching.watch(settings, meter, Clock(*events))


def running(settings: Run, answers: int) -> Callable[[], None]:
    counts = {**COUNTS, "decoded": float(answers), "answers": float(answers)}
    run = build_plan(settings).run  # as the driver has it
    return lambda: run_files.write_pulse(run, "running", counts)


def test_watch_shows_rates_engines_shards_errors_and_the_end(
    small_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = small_settings()

    def end() -> None:
        make_here(build_plan(settings))
        run_files.write_pulse(settings, "done")

    steps = [running(settings, 10), running(settings, 20), running(settings, 40), end]
    assert watched(settings, *steps) == 0
    output = capsys.readouterr().err
    assert f"{settings.name}: not begun yet" in output
    assert "10/70 answers · 1/4 shards · 2 errors · waiting for the first answers" in output
    assert "20/70 answers · 1/4 shards · 2 errors · 5.0 answers/s" in output
    assert "· 1 engine" in output
    assert output.rstrip().endswith(f"done; results in {settings.results}/{settings.name}")


@pytest.mark.parametrize(("error", "state"), [(DecodingError, "failed"), (StoppedError, "stopped")])
def test_watch_ends_with_the_run_and_its_reason(
    small_settings: Settings, capsys: pytest.CaptureFixture[str], error: type[Exception], state: str
) -> None:
    settings = small_settings()

    def fail(_: Plan) -> None:
        running(settings, 10)()
        raise error("no engine was ready")

    with pytest.raises(error):
        measure_run(settings, fail)
    assert watched(settings) == 1
    output = capsys.readouterr().err
    assert f"{settings.name}: {state} at 20" in output
    assert "no engine was ready; log: " in output


def test_watch_run_that_says_nothing_for_long_is_told(
    small_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = build_plan(small_settings()).run
    running(settings, 10)()
    quiet = [lambda: None] * 31
    watched(settings, *quiet, lambda: run_files.write_pulse(settings, "failed"))
    assert f"no sign of process {os.getpid()} on " in capsys.readouterr().err


def test_watch_finished_run_is_done_at_once(
    finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watched(finished.run) == 0
    assert "done; results in " in capsys.readouterr().err


def test_pulse_damaged_is_none(small_settings: Settings) -> None:
    settings = small_settings()
    running(settings, 1)()
    path = Path(settings.results) / settings.name / run_record.PROGRESS
    path.write_text(path.read_text()[:40])
    assert run_files.read_pulse(settings) is None


def test_status_watch_interrupted_is_130_without_a_word(
    finished: Plan, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "watch", interrupted)
    places = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    assert main(["status", "--watch", *small, *places]) == 130

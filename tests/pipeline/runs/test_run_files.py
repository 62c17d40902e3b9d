"""The log of a run, and where things lie when it fails."""

import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from factsweep.operators.errors import DecodingError, InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import logs
from factsweep.pipeline.runs import run_files
from factsweep.pipeline.runs import run_tasks as following
from factsweep.pipeline.runs.run import measure_run, run
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.folder import Folder
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.here import make_here

Settings = Callable[..., Run]
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
SECRET = "hf_planted0123456789abcdefgh"


def folder(settings: Run) -> Path:
    return Path(settings.results) / settings.name / "logs"


def test_journal_has_times_levels_and_what_was_said(small_settings: Settings) -> None:
    def make(plan: Plan) -> None:
        logs.LOG.warning("something odd, %s", SECRET)
        make_here(plan)

    settings = small_settings()
    measure_run(settings, make)
    lines = (folder(settings) / "run.log").read_text().splitlines()
    assert all(re.match(rf"{STAMP} (INFO|WARNING) ", line) for line in lines)
    assert lines[0].endswith("begins: tiny on myriadlama-mini (4-template), seed 0")
    assert any("WARNING something odd, [redacted]" in line for line in lines)
    assert lines[-1].endswith(f"done; results in {settings.results}/{settings.name}")
    assert not any(type(handler).__module__ == run_files.__name__ for handler in logs.LOG.handlers)


def test_run_that_was_stopped_with_all_answered_is_done_by_the_next(
    small_settings: Settings,
) -> None:
    settings = small_settings()
    measure_run(settings, make_here)
    run_files.write_pulse(settings, "stopped", {"answers": 7.0})
    measure_run(settings, make_here)
    pulse = run_files.read_pulse(settings)
    assert pulse is not None
    assert (pulse.state, pulse.counts) == ("done", {"answers": 7.0})


@pytest.mark.parametrize("terminal", [True, False])
def test_journal_has_the_error_with_time_and_level(
    small_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    terminal: bool,
) -> None:
    def fail(_: Plan) -> None:
        raise DecodingError(f"no engine was ready for {SECRET}.")

    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    settings = small_settings()
    with pytest.raises(DecodingError):
        measure_run(settings, fail)
    line = (folder(settings) / "run.log").read_text().splitlines()[-1]
    sentence = "ended by DecodingError: no engine was ready for [redacted]."
    assert re.fullmatch(rf"{STAMP} ERROR {re.escape(sentence)}", line)
    elsewhere = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(elsewhere) == (0 if terminal else 1)  # a terminal gets the sentence of the command


def test_journal_failed_run_says_where_things_lie(
    small: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: Plan, **__: object) -> None:
        raise DecodingError("no engine was ready.")

    monkeypatch.setattr("factsweep.pipeline.runs.run.compute", fail)
    places = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results", "run_name=r"]
    assert main(["run", *small, *places]) == 1
    sentence, log, published = capsys.readouterr().err.splitlines()
    assert sentence == "factsweep: no engine was ready."
    assert log.startswith(f"  log: {tmp_path}/results/r/logs/run.log, ")
    assert published.startswith(f"  published so far: {tmp_path}/artifacts/; the next run resumes")
    assert "ended by DecodingError: no engine" in (tmp_path / "results/r/logs/run.log").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray", "plain")
def test_journal_engines_logs_lie_beside_it_and_the_pulse_of_the_run_says_that_it_is_done(
    small_settings: Settings,
) -> None:
    settings = small_settings("decoding.samples.n_prompts=0")
    run(settings)
    names = sorted(path.name for path in folder(settings).iterdir())
    assert [re.sub(r"\d{8}-\d{6}", "…", name) for name in names] == ["engine-…-1.log", "run.log"]
    assert "first prompt, " in (folder(settings) / "run.log").read_text()
    pulse = run_files.read_pulse(settings)
    assert pulse is not None
    assert (pulse.state, pulse.pid, pulse.why) == ("done", os.getpid(), None)
    assert pulse.counts["all_answers"] == 83


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_journal_log_of_a_node_that_is_gone_takes_no_other_along(
    small_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings = small_settings()
    node_id = ray.get_runtime_context().get_node_id()
    logs = ray.put([(f"{1:056x}", "/gone.err"), (node_id, "/none.err")])
    tally = SimpleNamespace(logs=SimpleNamespace(remote=lambda: logs))
    with caplog.at_level("WARNING"):
        following._copy_engine_logs(settings, tally)
    (path,) = folder(settings).iterdir()
    assert path.name.endswith("-2.log")
    assert re.search(naming("1 of 2 engines", "TaskUnschedulableError"), caplog.text)


def test_keep_hides_secrets(small_settings: Settings) -> None:
    settings = small_settings()
    run_files.write_engine_log(settings, 1, f"Bearer {SECRET}\nValueError: no memory")
    (path,) = folder(settings).iterdir()
    assert path.read_text() == "Bearer [redacted]\nValueError: no memory"


def test_journal_whose_folder_is_removed_meanwhile_begins_anew_there(
    small_settings: Settings,
) -> None:
    settings = small_settings()
    with run_files.log_run(settings):
        logs.LOG.info("before")
        shutil.rmtree(folder(settings).parent)
        for text in ("after", "and on"):
            logs.LOG.info(text)
    written = (folder(settings) / "run.log").read_text()
    assert re.fullmatch(rf"{STAMP} INFO after\n{STAMP} INFO and on\n", written)


def test_journal_that_is_full_is_set_aside(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "_MOST_BYTES", 100)
    settings = small_settings()
    with run_files.log_run(settings):
        for number in range(9):
            logs.LOG.info("line %d, %s", number, "x" * 20)
    names = ["run.log", *(f"run.log.{number}" for number in (1, 2, 3))]
    assert sorted(path.name for path in folder(settings).iterdir()) == names
    assert "line 8" in (folder(settings) / "run.log").read_text()


def test_journal_url_gets_the_lines_at_the_end(small_settings: Settings, tmp_path: Path) -> None:
    settings = small_settings(f"results=file://{tmp_path}/there")
    for _ in range(2):
        with run_files.log_run(settings):
            logs.LOG.info("hello")
    written = (tmp_path / "there" / settings.name / "logs/run.log").read_text()
    assert re.fullmatch(rf"({STAMP} INFO hello\n){{2}}", written)


def test_journal_in_a_store_has_errors_at_once_and_other_lines_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    handler = run_files._InStore(store, "run.log")

    def log_lines(level: int) -> list[str]:
        handler.handle(logging.LogRecord("x", level, __file__, 0, f"line {level}", None, None))
        return store.get("run.log").decode().split("\n") if store.exists("run.log") else []

    assert log_lines(logging.INFO) == []
    assert log_lines(logging.ERROR) == ["line 20", "line 40", ""]
    assert log_lines(logging.INFO)[-2] == "line 40"
    monkeypatch.setattr(run_files, "_PUT_EVERY_S", -1.0)
    assert log_lines(logging.WARNING)[-3:] == ["line 20", "line 30", ""]
    handler.close()
    assert store.get("run.log").count(b"line") == 4


def test_waiting_writes_what_is_new_at_once_and_the_same_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    written = list[str]()
    monkeypatch.setattr(run_files, "time", clock)
    monkeypatch.setattr(run_files, "write_pulse", lambda *args: written.append(args[-1]))
    run: Any = None
    beat = run_files.PulseWriter(run)
    for time_s, reason in ((1000, "one"), (1000, "one"), (1000, "two"), (9000, "two")):
        clock.now = time_s
        beat.report_wait(reason)
    assert written == ["one", "two", "two"]


def test_files_that_no_number_needs_may_fail_with_one_warning_for_each(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """/dev/full refuses every write, as a full disk does."""
    settings = small_settings()
    monkeypatch.setattr(run_files, "_BEAT_EVERY_S", 0.0)

    def make(plan: Plan) -> None:
        run_files.write_pulse(settings, "running", {})
        results = Path(settings.folder)
        (results / "logs/run.log").unlink()
        (results / "logs/run.log").symlink_to("/dev/full")
        real_put = Folder.put

        def put(self: Folder, name: str, content: bytes) -> None:
            if name.startswith(("progress.json", "logs/", "rates/")):
                raise InputError(f"{name} cannot be written (No space left on device); make room.")
            real_put(self, name, content)

        monkeypatch.setattr(Folder, "put", put)
        beat = run_files.PulseWriter(settings)
        for number in range(3):
            beat.show({"answers": float(number)})
            run_files.write_engine_log(settings, number, "a line")
        make_here(plan)

    metrics = measure_run(settings, make)
    assert metrics.height > 0
    lost = [m for m in caplog.messages if m.startswith("the run continues without")]
    expected = ["progress.json", "the engines' logs", "its rates", "logs/run.log"]
    assert sorted(
        message.partition(": ")[0].removeprefix("the run continues without ") for message in lost
    ) == sorted(expected)
    caplog.clear()
    with pytest.raises(InputError, match=naming("progress.json")):  # before anything is paid for
        run_files.write_pulse(settings, "running", {})


def test_numbers_that_cannot_be_written_end_the_run(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small_settings()
    real_put = Folder.put

    def put(self: Folder, name: str, content: bytes) -> None:
        if name == "metrics.parquet":
            raise InputError(f"{name} cannot be written (No space left on device); make room.")
        real_put(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "put", put)
        with pytest.raises(InputError, match=naming("metrics.parquet")):
            measure_run(settings, make_here)
    assert measure_run(settings, make_here).height > 0  # nothing is answered again

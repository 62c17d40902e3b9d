"""The files of a run about itself.

logs/run.log, logs/engine-<time>-<number>.log
progress.json   its state and counts, read by `factsweep status --watch`
"""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Literal

from factsweep.operators.errors import (
    DamagedFileError,
    FactsweepError,
    InputError,
    StoppedError,
    reason,
)
from factsweep.operators.wording import count
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.secrets import hidden
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.results.run_record import PROGRESS, QUESTIONS, describe_run, format_now
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage.store import Store

_FOLDER = "logs"
_NAME = f"{_FOLDER}/run.log"
_MOST_BYTES = 10 * 2**20  # of a log before it is rotated
_KEPT = 3  # rotated logs
_PUT_EVERY_S = 20.0  # into an object store, in two calls
_MOST_ENGINES = 200  # whose logs are kept
_STOPS = (KeyboardInterrupt, StoppedError)
_BEAT_EVERY_S = 5.0

State = Literal["waiting", "running", "done", "failed", "stopped"]


@contextmanager
def log_run(run: Run) -> Iterator[None]:
    """Copy the log lines of the block into the log of the run.

    An error that is no InputError gets notes on the folders of the run.
    """
    logs.LOST.clear()
    store = Store(run.folder)
    is_local = "://" not in store.root
    handler = _InFolder(Path(store.root) / _NAME) if is_local else _InStore(store, _NAME)
    handler.setFormatter(logs.FORMATTER)
    level = logs.LOG.level
    logs.LOG.setLevel(logging.INFO)
    logs.LOG.addHandler(handler)
    try:
        with _stop_on_sigterm():
            yield
            _note_end(run, "done")
    except BaseException as error:
        is_stop = isinstance(error, KeyboardInterrupt)
        text = reason(error) if is_stop else f"ended by {type(error).__name__}: {error}"
        sentence = ("%s", (text,), None)
        record = logs.LOG.makeRecord(logs.LOG.name, logging.ERROR, __file__, 0, *sentence)
        # On a terminal the command prints the error.
        (handler if sys.stderr.isatty() else logs.LOG).handle(record)
        _note_end(run, "stopped" if isinstance(error, _STOPS) else "failed", reason(error))
        if not isinstance(error, InputError):
            artifacts = Store(run.artifacts).where()
            error.add_note(f"log: {store.where(_NAME)}, with those of the engines")
            error.add_note(f"published so far: {artifacts}/; the next run resumes from there")
        raise
    finally:
        logs.LOG.removeHandler(handler)
        logs.LOG.setLevel(level)
        handler.close()


@contextmanager
def _stop_on_sigterm() -> Iterator[None]:
    """Have SIGTERM stop the block as Ctrl-C does, unless the program handles it: `cli` does."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def log_failure(run: Run, error: FactsweepError) -> None:
    """Record the error that ends a run at once; callable from any thread."""
    logs.LOG.error("%s", error)
    _note_end(run, "failed", str(error))


def _note_end(run: Run, state: State, cause: str | None = None) -> None:
    """Write the end into progress.json if this process began the run, or if it is done now."""
    with logs.may_fail(PROGRESS):
        last = read_pulse(run)
        if last is None:
            return
        is_own = last.state in ("waiting", "running") and last.pid == os.getpid()
        is_other = last.state != "done" or not is_pulse_of(last, run)
        if is_own:
            cause = cause and hidden(cause)
            put_pulse(run, replace(last, at=format_now(), state=state, why=cause))
        elif state == "done" and is_other:
            write_pulse(run, state)


def log_start(plan: Plan, sentences: Sequence[str]) -> None:
    """Log the start of a run: settings, place, number of missing artifacts, and the warnings."""
    run = plan.run
    settings = ", ".join(branch.title for branch in plan.branches)
    study = f"{run.model.name} on {run.benchmark.name} ({settings}), seed {run.seed}"
    logs.LOG.info("run %s begins: %s", run.name, study)
    version = f"{metadata.version('factsweep')}, commit {commit() or 'unknown'}"
    place = f"process {os.getpid()} on {socket.gethostname()}; artifacts in {plan.store.where()}"
    missing = count(len(plan.missing()), "artifact")
    logs.LOG.info("factsweep %s, %s, %s missing", version, place, missing)
    for sentence in sentences:
        logs.LOG.warning("%s", sentence)


def write_engine_log(run: Run, number: int, text: str) -> None:
    """Write the log of an engine next to that of the run."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    store = Store(run.folder)
    with logs.may_fail("the engines' logs"):
        store.put(f"{_FOLDER}/engine-{stamp}-{number}.log", hidden(text).encode())
        names = [name for name in store.names(_FOLDER) if name.startswith("engine-")]
        for name in names[:-_MOST_ENGINES]:
            store.drop(f"{_FOLDER}/{name}")


class _InFolder(RotatingFileHandler):
    """Appends to a file that is opened for each line, so that its folder may be removed meanwhile.

    Errors of the disk do not end the run: publishing results raises them.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a", _MOST_BYTES, _KEPT, encoding="utf-8", delay=True)

    def emit(self, record: logging.LogRecord) -> None:
        with logs.may_fail(_NAME):
            Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
            try:
                super().emit(record)
            finally:
                stream, self.stream = self.stream, None
                if stream is not None:
                    stream.close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        if isinstance(error := sys.exc_info()[1], OSError):
            raise error


class _InStore(logging.Handler):
    """Appends lines to an object: errors at once, others every `_PUT_EVERY_S`."""

    def __init__(self, store: Store, name: str) -> None:
        super().__init__()
        self._store, self._name = store, name
        self._lines = list[str]()
        self._put_at = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
        if record.levelno >= logging.ERROR or time.monotonic() - self._put_at > _PUT_EVERY_S:
            self._put_lines()

    def close(self) -> None:
        self._put_lines()
        super().close()

    def _put_lines(self) -> None:
        """Write the lines; a store out of reach gets them the next time."""
        self._put_at = time.monotonic()
        with logs.may_fail(_NAME):
            if self._lines:
                content = self._store.get(self._name) if self._store.exists(self._name) else b""
                if len(content) > _MOST_BYTES:
                    self._store.put(f"{self._name}.1", content)
                    content = b""
                self._store.put(self._name, content + "\n".join([*self._lines, ""]).encode())
                self._lines.clear()


@dataclass(frozen=True)
class Pulse:
    """The state of a run at a moment, the counts of its engines, and `why` it waits or failed."""

    at: str
    state: State
    host: str
    pid: int
    counts: dict[str, float]
    why: str | None
    machine: str | None = None  # as in lease.Holder
    started: str | None = None
    run: dict[str, Any] | None = None  # the configuration; older versions wrote none

    @property
    def process(self) -> str:
        """Its process, for messages."""
        return f"process {self.pid} on {self.host}"

    def is_dead(self) -> bool:
        """Whether its process has certainly ended without noting an end."""
        is_open = self.state in ("waiting", "running")
        return is_open and lease.has_ended(self.pid, self.machine, self.started)


class PulseWriter:
    """Writes the pulse of a run: at once if the reason of a wait is new, else every 5 seconds."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._why: str | None = None
        self._last = -_BEAT_EVERY_S

    def show(self, counts: Mapping[str, float]) -> None:
        """Write the counts if they are due."""
        self._show("running", counts)

    def report_wait(self, cause: str) -> None:
        """Report a wait: in the log once, and in the pulse."""
        if cause != self._why:
            logs.LOG.warning("%s.", cause)
        self._show("waiting", {}, cause)

    def _show(self, state: State, counts: Mapping[str, float], cause: str | None = None) -> None:
        if cause != self._why or time.monotonic() - self._last >= _BEAT_EVERY_S:
            self._why, self._last = cause, time.monotonic()
            with logs.may_fail(PROGRESS):
                write_pulse(self._run, state, counts, cause)


def write_pulse(
    run: Run, state: State, counts: Mapping[str, float] | None = None, cause: str | None = None
) -> None:
    """Write a pulse; without counts, with those of the last one."""
    if counts is None:
        last = read_pulse(run)
        counts = last.counts if last is not None else {}
    this = lease.this_process()
    process = (this.host, this.pid, dict(counts), cause, this.machine, this.started)
    put_pulse(run, Pulse(format_now(), state, *process, describe_run(run)))


def is_pulse_of(pulse: Pulse, run: Run) -> bool:
    """Whether a pulse is of a run that asks the same.

    A target raises the budget meanwhile, and that of samples their number.
    """
    questions = describe_run(run), pulse.run or {}
    names = [*QUESTIONS, *([] if run.target is not None else ["budget"])]
    left, right = ({name: fields.get(name) for name in names} for fields in questions)
    if run.decoding.samples.until is not None:
        for fields in (left, right):
            samples = {**(fields["decoding"] or {}).get("samples", {}), "n_answers": None}
            fields["decoding"] = {**(fields["decoding"] or {}), "samples": samples}
    return left == right


def put_pulse(run: Run, pulse: Pulse) -> None:
    """Write a pulse into the folder of the results of a run."""
    Store(run.folder).put_json(PROGRESS, asdict(pulse))


def read_pulse(run: Run) -> Pulse | None:
    """The last pulse of a run; null if there is none, or if it is damaged."""
    store = Store(run.folder)
    try:
        return build(Pulse, store.get_json(PROGRESS), store.where(PROGRESS))
    except (FileNotFoundError, DamagedFileError):
        return None

"""The runs of a study side by side on the GPUs of one cluster: each in a process of its own.

A process is a driver of a Ray that all share. It is started when the GPUs of its first engine are
free (`packing`), and one that dies takes nothing with it. What it writes to its standard error is
shown behind the name of its run.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import NamedTuple

from factsweep.operators.errors import DecodingError, FactsweepError, InputError, StoppedError
from factsweep.operators.wording import count
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.execution import cluster, share
from factsweep.pipeline.execution.faults import head
from factsweep.pipeline.execution.hardware import gpus_per_engine
from factsweep.pipeline.execution.share import Share
from factsweep.pipeline.live import pulse
from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.ending import end
from factsweep.pipeline.machine.secrets import hidden_traceback
from factsweep.pipeline.studies.packing import Demand, Job, capacity, in_line, may_begin, shares

_LOOK_EVERY_S = 1.0
_STOP_WITHIN_S = 120.0
Errors = dict[str, FactsweepError]  # by the name of the run


@dataclass(frozen=True)
class Piece:
    """Runs that share engines: what they need, and what measures one after the other."""

    job: Job
    runs: tuple[Run, ...]
    measure: Callable[[], Errors]


def can_share(run: Run) -> bool:
    """Whether a run's engines hold GPUs that are there before they are asked for."""
    return gpus_per_engine(run) > 0 and not run.cluster.autoscales


def measured(pieces: Sequence[Piece]) -> Errors | None:
    """Measure runs side by side; returns what failed. Null: no two have room at the same time.

    Raises:
        StoppedError: the user asked to stop; the next time resumes.
    """
    run = pieces[0].runs[0]
    with cluster.shared(run) as address, head.watched(address, lambda e: logs.LOG.error("%s", e)):
        gpus = cluster.gpus_by_node()
        fit = [each.job for each in pieces if capacity(each.job, gpus) >= each.job.least]
        smallest = sorted(fit, key=lambda job: job.least * job.gpus)[:2]
        if not may_begin(smallest[1:], gpus, [Demand(job, job.least) for job in smallest[:1]]):
            return None
        return _packed(pieces, fit, shares(fit, gpus), address)


def _packed(
    pieces: Sequence[Piece], fit: Sequence[Job], engines: Mapping[str, int], address: str
) -> Errors:
    by_name, line = {each.job.name: each for each in pieces}, in_line(fit, engines)
    drivers, failed, busy_at = list[_Driver](), Errors(), time.monotonic()
    with _ended(drivers):
        # What never has room says so before it asks for anything.
        for each in [each for each in pieces if each.job not in fit]:
            drivers.append(_Driver(each, Share(address, each.job.least)))
        while line or drivers:
            to_come = [Demand(each.piece.job, each.to_come()) for each in drivers] if line else []
            busy_at = time.monotonic() if drivers else busy_at
            # Where others hold the GPUs for so long, the next run says what it waits for.
            waits = (
                line and time.monotonic() - busy_at > by_name[line[0].name].runs[0].cluster.start_s
            )
            if waits or may_begin(line, cluster.free_gpus(), to_come):
                piece = by_name[line.pop(0).name]
                n = engines[piece.job.name]
                where = f"{count(n, 'engine')} of {piece.job.gpus:g} GPUs"
                place = f"{len(fit) - len(line)} of {len(fit)}"
                logs.LOG.info("run %s: %s, %s", place, piece.job.name, where)
                drivers.append(_Driver(piece, Share(address, n)))
                continue
            connection.wait([each.says for each in drivers], timeout=_LOOK_EVERY_S)
            for over in [each for each in drivers if each.says.poll()]:
                drivers.remove(over)
                failed |= over.errors()
    return failed


@contextmanager
def _ended(drivers: Sequence["_Driver"]) -> Iterator[None]:
    """Have what still goes on at the end of the block publish what is finished, and end."""
    try:
        yield
    finally:
        for each in drivers:
            each.stop()
        until = time.monotonic() + _STOP_WITHIN_S
        for each in drivers:
            each.wait(until - time.monotonic())


class _Said(NamedTuple):
    """How a driver's work ended: what failed of it, or that somebody asked to stop."""

    errors: Errors
    stopped: StoppedError | None = None


class _Driver:
    """A process that measures the runs of a piece; `says` has something when that is over."""

    def __init__(self, piece: Piece, given: Share) -> None:
        self.piece = piece
        self._share, self._began, self._are_there = given, time.monotonic(), False
        spawn = multiprocessing.get_context("spawn")
        self.says, says = spawn.Pipe(duplex=False)
        text, writes = spawn.Pipe(duplex=False)
        self._process = spawn.Process(target=_drive, args=(piece.measure, given, says, writes))
        # Ctrl-C in a terminal reaches all of its processes: this one passes it on, once.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for each in (says, writes):
            each.close()
        self._shows = threading.Thread(target=self._show, args=(text,), daemon=True)
        self._shows.start()

    def to_come(self) -> int:
        """How many engines it will still start, as far as it has told; none that never came."""
        run = self.piece.runs[0]
        self._are_there |= time.monotonic() - self._began > run.cluster.start_s
        if self._are_there:
            return 0
        told = pulse.read(run)
        counts = told.counts if told is not None and told.pid == self._process.pid else {}
        if "all_shards" not in counts:
            return self._share.engines
        lacking = self._share.engines - int(counts.get("places", 0))
        n = max(0, min(lacking, int(counts.get("to_begin", 0))))
        self._are_there = n == 0
        return n

    def errors(self) -> Errors:
        """What failed, when the process has said so or has ended."""
        try:
            said: _Said = self.says.recv()
        except EOFError:
            said = _Said({self.piece.job.name: self._died()})
        self.wait(None)
        if said.stopped is not None:
            raise said.stopped
        return said.errors

    def _died(self) -> DecodingError:
        self.wait(None)
        return DecodingError(
            f"its process ended with code {self._process.exitcode} and without a word; what is "
            "published is kept, so look into its log, and run again."
        )

    def stop(self) -> None:
        """Ask the process to stop, if it goes on."""
        if self._process.is_alive():
            self._process.terminate()

    def wait(self, seconds: float | None) -> None:
        """Wait for its end; one that takes longer is killed."""
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._shows.join(_LOOK_EVERY_S)

    def _show(self, text: Connection) -> None:
        """Show what it writes to its standard error, with the name of its run."""
        form = self.piece.runs[0].log
        with os.fdopen(os.dup(text.fileno()), errors="replace") as lines:
            text.close()
            for line in lines:
                sys.stderr.write(line if form == "json" else f"{self.piece.job.name}: {line}")


def _drive(measure: Callable[[], Errors], given: Share, says: Connection, text: Connection) -> None:
    """Measure the runs of a piece in this process, whose standard error goes to `text`."""
    os.dup2(text.fileno(), sys.stderr.fileno())
    os.dup2(text.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logs.to_stderr()
    try:
        with share.given(given):
            says.send(_Said(measure()))
        code = 0
    except (StoppedError, KeyboardInterrupt) as error:
        stopped = error if isinstance(error, StoppedError) else StoppedError("stopped.")
        says.send(_Said({}, stopped))
        code = StoppedError.exit_code
    except Exception:
        sys.stderr.write(hidden_traceback())
        code = 1
    end(code)


def _end_with_parent() -> None:
    """End this process with the one that has started it: nobody would know of it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    end(InputError.exit_code)

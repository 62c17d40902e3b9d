"""The pulse of a run: <results>/<run>/progress.json, from which others see how it gets on."""

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.storage.sealed import seal, unseal
from factsweep.pipeline.storage.store import Store

NAME = "progress.json"
_EVERY_S = 5.0

State = Literal["waiting", "running", "done", "failed", "stopped"]


@dataclass(frozen=True)
class Pulse:
    """How a run got on at a moment: the counts of its engines; `why` it waits, or has failed."""

    at: str
    state: State
    host: str
    pid: int
    counts: dict[str, float]
    why: str | None


class Beat:
    """Writes the pulse of a run of this process: when there is news, and else now and then."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._why: str | None = None
        self._last = -_EVERY_S

    def show(self, counts: Mapping[str, float]) -> None:
        """Write the counts, if it is time."""
        self._show("running", counts)

    def waits(self, why: str) -> None:
        """Tell whom the run waits for: in its log once, in its pulse if that is new, or in time."""
        if why != self._why:
            LOG.warning("%s.", why)
        self._show("waiting", {}, why)

    def _show(self, state: State, counts: Mapping[str, float], why: str | None = None) -> None:
        if why != self._why or time.monotonic() - self._last >= _EVERY_S:
            self._why, self._last = why, time.monotonic()
            write(self._run, state, counts, why)


def write(
    run: Run, state: State, counts: Mapping[str, float] | None = None, why: str | None = None
) -> None:
    """Write a pulse; without counts, with those of the last one."""
    if counts is None:
        last = read(run)
        counts = last.counts if last is not None else {}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    found = Pulse(now, state, socket.gethostname(), os.getpid(), dict(counts), why)
    Store(run.folder).put(NAME, seal(asdict(found), NAME))


def read(run: Run) -> Pulse | None:
    """The last pulse of a run; null where there is none that can be read."""
    store = Store(run.folder)
    where = store.where(NAME)
    try:
        return build(Pulse, unseal(store.get(NAME), NAME, where), where)
    except (FileNotFoundError, DamagedFileError):
        return None

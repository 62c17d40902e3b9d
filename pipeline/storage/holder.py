"""Who writes in a store: a process, on which boot of which machine."""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import uuid4

from pydantic import Field


@dataclass(frozen=True)
class Holder:
    """A writer: `id` is its own; `since` is in seconds since 1970 by its own clock, for messages.

    `machine` names a boot of a machine and a namespace of processes on it, `started` when in that
    boot the process began; null where the system does not say.
    """

    id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    host: str
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    since: Annotated[float, Field(ge=0, le=2**35)]
    machine: str | None
    started: str | None

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {since}"

    @property
    def heartbeat(self) -> str:
        """The name of its heartbeat in a store."""
        return f"writers/{self.id}.json"

    def is_gone(self) -> bool:
        """Whether it was a process of this machine that has certainly ended."""
        return (
            self.machine is not None
            and self.machine == _machine()
            and _has_ended(self.pid, self.started)
        )


def me() -> Holder:
    """This process, as a writer of its own."""
    pid = os.getpid()
    return Holder(uuid4().hex, socket.gethostname(), pid, time.time(), _machine(), _started(pid))


def _machine() -> str | None:
    """This boot of this machine, and the namespace of processes that this one is in."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When in this boot a process began, in ticks; null if the system does not say."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "ended" if state in "ZX" else rest[18]


def _has_ended(pid: int, started: str | None) -> bool:
    """Whether a process of this machine is gone, or its number is another's now."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # somebody else's, and alive
    now = _started(pid)
    return None not in (now, started) and now != started

"""Leases: one driver at a time writes an artifact, and a second one is told who holds it.

A lease is a file that its holder renews. One that was not renewed for `EXPIRES_S`, or whose holder
was a process of this machine that is gone, is a dead driver's, and is taken over.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from operators.errors import ArtifactHeldError
from pipeline.storage.artifact import Artifact

EXPIRES_S = 60.0
_RENEW_S = 15.0
_LOOK_S = 2.0


@dataclass(frozen=True)
class Holder:
    """Who holds an artifact: `since` and `renewed` are seconds since 1970."""

    host: str
    pid: int
    since: float
    renewed: float

    def __str__(self) -> str:
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {started}"

    def is_dead(self) -> bool:
        """Whether the lease has run out, or its process is gone from this machine."""
        if time.time() - self.renewed > EXPIRES_S:
            return True
        return self.host == socket.gethostname() and not _is_alive(self.pid)


@contextmanager
def held(artifacts: Sequence[Artifact], *, wait: bool) -> Iterator[None]:
    """Hold the artifacts for the time of the block.

    Raises:
        ArtifactHeldError: another driver holds one of them, and `wait` is false.
    """
    since = time.time()
    done = threading.Event()
    with ExitStack() as stack:
        for artifact in artifacts:
            _take(artifact, since, wait)
            stack.callback(artifact.store.drop, _name(artifact))
        renewer = threading.Thread(target=_renew, args=(artifacts, since, done), daemon=True)
        renewer.start()
        stack.callback(renewer.join)
        stack.callback(done.set)
        yield


def _take(artifact: Artifact, since: float, wait: bool) -> None:
    while not artifact.store.put_new(_name(artifact), _me(since)):
        given = holder(artifact)
        if given is None:
            continue  # just given back
        if given.is_dead():
            artifact.store.drop(_name(artifact))
        elif wait:
            time.sleep(_LOOK_S)
        else:
            raise ArtifactHeldError(
                f"{artifact.store.where(artifact.folder)} is being written by {given}; wait for "
                "it, or set cluster.when_held=wait."
            )


def _renew(artifacts: Sequence[Artifact], since: float, done: threading.Event) -> None:
    while not done.wait(_RENEW_S):
        for artifact in artifacts:
            artifact.store.put(_name(artifact), _me(since))


def _me(since: float) -> bytes:
    return json.dumps(
        asdict(Holder(socket.gethostname(), os.getpid(), since, time.time()))
    ).encode()


def holder(artifact: Artifact) -> Holder | None:
    """Who holds an artifact, or held it last; null if it was given back."""
    try:
        return Holder(**json.loads(artifact.store.get(_name(artifact))))
    except FileNotFoundError:
        return None


def _name(artifact: Artifact) -> str:
    return f"{artifact.folder}/lease.json"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's, and alive
    return True

"""What the fault tests share."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from filelock import FileLock
from ray._private.services import get_node_ip_address

from tests.faults.sweep import ON_GPUS, SMALL, STARTED, Sweep, kill


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """A test that fails takes its drivers with it, so that it does not slow the next ones."""
    yield
    while STARTED:
        if (sweep := STARTED.pop()).process is not None:
            sweep.kill_driver()


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A small sweep that nothing happened to."""
    return undisturbed(tmp_path_factory, "calm", *SMALL)


@pytest.fixture(scope="session")
def calm_on_nodes(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The sweep of several nodes, which nothing happened to."""
    return undisturbed(tmp_path_factory, "calm-on-nodes", *ON_GPUS, "cluster.device=cpu")


def undisturbed(factory: pytest.TempPathFactory, name: str, *overrides: str) -> Sweep:
    """A sweep that ends well, made once for all processes of pytest (xdist)."""
    folder = factory.getbasetemp().parent / name
    with FileLock(f"{folder}.lock"):
        sweep = Sweep(folder, overrides)
        if not (folder / "results/sweep/index.html").exists():
            done = sweep.finish()
            assert done.returncode == 0, done.stderr
        return sweep


@pytest.fixture
def running_ray(_running_ray: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What has a sweep join a Ray that runs already: where it harms none, that takes half the time.

    The Ray has one node, and is a process of its own: tests may have another in theirs. It has no
    token, and drivers must want none, as one of this process would have them (`RAY_AUTH_MODE`).
    """
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    return _running_ray


@pytest.fixture(scope="session")
def _running_ray() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # paths of sockets are short
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [
        *("--head", "--block", f"--port={port}"),
        *("--num-cpus=16", "--include-dashboard=false", f"--temp-dir={folder}"),
        *("--min-worker-port=0", "--max-worker-port=0"),
    ]
    with (folder / "log").open("w") as log:
        head = subprocess.Popen(
            [Path(sys.executable).with_name("ray"), "start", *options],
            # As of a Ray that the driver starts.
            env={**os.environ, "RAY_worker_niceness": "0", "RAY_AUTH_MODE": "disabled"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    end = time.monotonic() + 600
    while "--block" not in (folder / "log").read_text():  # its last words before it waits
        assert head.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < end
        time.sleep(0.2)
    yield f"cluster.address={get_node_ip_address()}:{port}"
    for each in psutil.Process(head.pid).children(recursive=True):
        kill(each)
    head.kill()
    head.wait()
    shutil.rmtree(folder, ignore_errors=True)

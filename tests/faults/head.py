"""A Ray that runs before a driver joins it: `ray start --head --block`, a process of its own."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from ray._private.services import get_node_ip_address

from tests.faults.sweep import kill

_TRIES = 4
_STARTED = "--block"  # in the last words that it says before it waits


class Head(NamedTuple):
    """The folder of its logs and sockets, the address that drivers join, and its process."""

    folder: Path
    address: str
    process: "subprocess.Popen[bytes]"


@contextmanager
def running(options: Callable[[Path, str], Sequence[str]], **variables: str) -> Iterator[Head]:
    """One with the options that are `options` for its folder and its address.

    Where a busy machine starts Ray's agent too late, Ray gives up: then another one is started.
    """
    for tries_left in reversed(range(_TRIES)):
        folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # paths of sockets are short
        try:
            with _begun(folder, options, variables) as head:
                if _starts(head):
                    yield head
                    return
                assert tries_left, _said(head)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _begun(
    folder: Path, build_options: Callable[[Path, str], Sequence[str]], variables: dict[str, str]
) -> Iterator[Head]:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    address = f"{get_node_ip_address()}:{port}"
    options = [
        *("--head", "--block", f"--port={port}", f"--temp-dir={folder}/ray"),
        *("--min-worker-port=0", "--max-worker-port=0", "--include-dashboard=false"),
        "--include-log-monitor=false",
        *build_options(folder, address),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("ray"), "start", *options],
            env={**os.environ, "RAY_AUTH_MODE": "disabled"} | variables,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Head(folder, address, process)
    finally:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                kill(child)
            process.kill()
            process.wait()


def _starts(head: Head) -> bool:
    until = time.monotonic() + 600
    while _STARTED not in _said(head):
        if head.process.poll() is not None:
            return False
        assert time.monotonic() < until
        time.sleep(0.2)
    return True


def _said(head: Head) -> str:
    return (head.folder / "log").read_text()

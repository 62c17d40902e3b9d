"""A real S3 protocol server on this machine: moto's, in a process of its own.

vLLM, which other tests load, does not work together with moto's imports.
"""

import math
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

import boto3
import pytest

_MOTO = Path(__file__).with_name("moto_server.py")
_START_S = 60


class Server(NamedTuple):
    """The URL that it answers at, and its process."""

    url: str
    process: "subprocess.Popen[bytes]"


@contextmanager
def serving(log: Path, *other: str) -> Iterator[Server]:
    """A server that notes its requests in `log`; `busy` or `google`: see tests/moto_server.py."""
    command = [sys.executable, "-P", str(_MOTO), *other]
    with log.open("wb") as output, subprocess.Popen(command, stderr=output, stdout=output) as moto:
        try:
            end = time.monotonic() + _START_S
            while not (match := re.search(r"Running on (http://\S+)", log.read_text())):
                assert moto.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            yield Server(match[1], moto)
        finally:
            moto.kill()  # a paused one does not hear of SIGTERM


def bucket(url: str, patch: pytest.MonkeyPatch, name: str = "sweeps") -> str:
    """A new bucket at a server, which all processes from now on find; its URL."""
    for variable, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
    }.items():
        patch.setenv(variable, value)
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}"


class Line:
    """A port of this machine that leads to a server, until it is cut, and again when mended.

    A request takes `delay_s` longer than it does on one machine.
    """

    def __init__(self, url: str, delay_s: float = 0.0) -> None:
        self._server = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._delay_s = delay_s
        self._ends = set[socket.socket]()
        self._joining = Lock()
        self._port = 0
        self.mend()

    @property
    def url(self) -> str:
        """The URL of its near end."""
        return f"http://127.0.0.1:{self._port}"

    def mend(self) -> None:
        """Take connections."""
        self._near = socket.create_server(("127.0.0.1", self._port), backlog=128)
        self._port = self._near.getsockname()[1]
        Thread(target=self._take, args=(self._near,), daemon=True).start()

    def cut(self) -> None:
        """Break all connections, and refuse others."""
        with self._joining:
            for end in (self._near, *self._ends):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            self._ends.clear()

    def _take(self, near: socket.socket) -> None:
        with suppress(OSError):  # it is cut
            while True:
                client, _ = near.accept()
                with self._joining:
                    if near.fileno() < 0:  # it was cut just now
                        client.close()
                        return
                    server = socket.create_connection(self._server)
                    self._ends |= {client, server}
                Thread(target=self._join, args=(client, server), daemon=True).start()

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on what both say until both end; moto does so behind each answer."""
        back = Thread(target=_pass_on, args=(server, client, 0.0), daemon=True)
        back.start()
        _pass_on(client, server, self._delay_s)
        back.join()
        with self._joining:
            self._ends -= {client, server}
            client.close()
            server.close()


class Breaking:
    """A port that leads to a server, and breaks off its first answers some bytes into the body.

    `fault`: the connection ends, it resets, or it stalls.
    """

    def __init__(self, url: str, fault: str, times: int, after: int) -> None:
        self._server = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._fault, self._times, self._after = fault, times, after
        self._near = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._near.getsockname()[1]}"
        Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            client, _ = self._near.accept()
            Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        """Answer one request of a connection, which has no body; then close it."""
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += client.recv(2**16)
        with socket.create_connection(self._server) as server:
            server.sendall(re.sub(rb"\r\n\r\n$", b"\r\nConnection: close\r\n\r\n", request))
            answer = b"".join(iter(lambda: server.recv(2**16), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        if self._times == 0:
            client.sendall(answer)
            client.close()
            return
        self._times -= 1
        client.sendall(head + b"\r\n\r\n" + body[: self._after])
        if self._fault == "stalls":
            time.sleep(_START_S)
        elif self._fault == "resets":
            time.sleep(0.05)  # else the bytes before it are lost, too
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


def _pass_on(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    passed = -math.inf
    with suppress(OSError):
        while content := source.recv(2**16):
            if time.monotonic() - passed > delay_s:  # else it is more of the same request
                time.sleep(delay_s)
            target.sendall(content)
            passed = time.monotonic()
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)

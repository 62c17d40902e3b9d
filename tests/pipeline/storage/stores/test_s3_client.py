"""Which stores share a client of S3, and what a client that is shared goes on doing."""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.storage.stores import s3_client
from factsweep.pipeline.storage.stores.store import Store
from tests.messages import naming

SECRET = "wJalrXUtnFEMI-planted-secret"
N_AT_ONCE = 60  # each of which is tried twice: more retries than botocore's quota allows


class Shelf(BaseHTTPRequestHandler):
    """An S3 server that answers so many requests with a 503, then all with one object."""

    protocol_version = "HTTP/1.1"
    n_refused = 0
    keys: frozenset[str] = frozenset()
    counting = Lock()

    def do_GET(self) -> None:
        with self.counting:
            refuses = Shelf.n_refused > 0
            Shelf.n_refused -= refuses
            Shelf.keys |= set(re.findall(r"Credential=(\w+)/", self.headers["Authorization"]))
        content = b"" if refuses else b"rows"
        self.send_response(503 if refuses else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: it is many lines."""


class Server(ThreadingHTTPServer):
    request_queue_size = 2 * N_AT_ONCE


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setattr(Shelf, "n_refused", 0)
    monkeypatch.setattr(Shelf, "keys", frozenset())
    with Server(("127.0.0.1", 0), Shelf) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield "s3://sweeps"
        server.shutdown()


def test_stores_of_one_account_share_a_client(bucket: str) -> None:
    def client(_: int) -> object:
        return s3_client.client(s3_client.caller(None, None, None, None))

    with ThreadPoolExecutor(16) as pool:
        clients = set(pool.map(client, range(64)))
    assert len(clients) == 1
    assert s3_client.client(s3_client.caller("http://127.0.0.1:9", None, None, None)) not in clients


def test_key_that_is_changed_is_used_by_the_next_store(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Store(f"{bucket}/a").get("one")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    Store(f"{bucket}/a").get("one")
    assert Shelf.keys == {"first", "second"}
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for key in ("third", "fourth"):
        written = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n"
        (tmp_path / "credentials").write_text(written)
        Store(f"{bucket}/b").get("one")
    assert Shelf.keys == {"first", "second", "third", "fourth"}
    Store(f"s3://fifth:{SECRET}@sweeps/b").get("one")
    assert "fifth" in Shelf.keys


def test_request_that_fails_once_after_an_outage_is_sent_again(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_client, "BOTO_ATTEMPTS", 2)
    Shelf.n_refused = 2 * N_AT_ONCE

    def asked(n: int) -> None:
        with pytest.raises(InputError, match=naming("read")):
            Store(f"{bucket}/{n}").get("one")

    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        list(pool.map(asked, range(N_AT_ONCE)))
    assert Shelf.n_refused == 0
    Shelf.n_refused = 1
    assert Store(bucket).get("one") == b"rows"
    assert Shelf.n_refused == 0


def test_forked_process_makes_a_client_of_its_own(bucket: str) -> None:
    script = """
import os, signal
from factsweep.pipeline.storage.stores import s3_client
who = s3_client.caller(None, None, None, None)
ours = s3_client.client(who)
with s3_client._CLIENTS._making:  # as another thread may, at that moment
    child = os.fork()
    if not child:
        signal.alarm(30)  # it must not outlive the test
        os._exit(7 if s3_client.client(who) is not ours else 1)
assert s3_client.client(who) is ours
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "7\n", done.stderr


def test_caller_is_written_without_secrets(bucket: str) -> None:
    assert SECRET not in repr(s3_client.caller(None, None, "key", SECRET))

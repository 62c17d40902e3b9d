"""What a client of an object store does when bodies break off, keys change, or nobody answers."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import pytest

from factsweep.operators.errors import InputError, UnavailableError
from factsweep.pipeline.storage import object_store as remote
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.s3_server import Breaking, bucket, serving

SECRET = "wJalrXUtnFEMI-planted-secret"
N_AT_ONCE = 60
ROWS = b"rows" * 50_000


class Shelf(BaseHTTPRequestHandler):
    """A server of S3 that answers so many requests with a status, then all with one object."""

    protocol_version = "HTTP/1.1"
    status, n_refused, code = 503, 0, ""
    keys: ClassVar[set[str]] = set()
    counting = Lock()

    def do_GET(self) -> None:
        with self.counting:
            refuses = Shelf.n_refused > 0
            Shelf.n_refused -= refuses
            Shelf.keys |= set(re.findall(r"Credential=(\w+)/", self.headers["Authorization"]))
        error = f"<Error><Code>{self.code}</Code><Message>no</Message></Error>".encode()
        content = error if refuses else b"rows"
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(self.status if refuses else 200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"of-rows"')
        self.send_header("Last-Modified", "Wed, 11 Nov 2026 11:11:11 GMT")
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing: it is many lines."""


class Server(ThreadingHTTPServer):
    request_queue_size = 2 * N_AT_ONCE


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    for name, value in (("n_refused", 0), ("status", 503), ("code", ""), ("keys", set())):
        monkeypatch.setattr(Shelf, name, value)
    monkeypatch.setattr(remote, "pauses_s", lambda: [0.0] * (remote.ATTEMPTS - 1))
    with Server(("127.0.0.1", 0), Shelf) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield "s3://sweeps"
        server.shutdown()


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("s3") / "requests.log") as server:
        yield server.url


READS: dict[str, tuple[Callable[[Store], object], object]] = {
    "whole": (lambda store: store.get("t/rows"), ROWS),
    "end": (lambda store: store.get("t/rows", 20_000), ROWS[-20_000:]),
    "names": (lambda store: len(store.names("many")), 40),
    "all below": (lambda store: len(store.files("")), 41),
}


@pytest.mark.parametrize("fault", ["ends", "resets", "stalls"])
def test_store_answer_that_breaks_off_is_asked_for_again_and_counted(
    fault: str, moto: str, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(remote, "pauses_s", lambda: [0.0, 0.0])
    monkeypatch.setitem(remote._CLIENT, "read_timeout", "300ms")
    remote._opened.cache_clear()
    store = Store(f"{bucket(moto, monkeypatch, f'breaking-{fault}')}/below")
    store.put("t/rows", ROWS)
    store.each(lambda n: store.put(f"many/{n}", b"1"), range(40))
    for name, (read, expected) in READS.items():
        with subtests.test(name=name):
            line = Breaking(moto, fault, times=2, after=500)
            monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
            refused = remote.REFUSED.times
            assert read(store) == expected
            assert remote.REFUSED.times == refused + 2
            line = Breaking(moto, fault, times=3, after=500)
            monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
            with pytest.raises(UnavailableError, match=naming("below", "network")) as raised:
                read(store)
            assert raised.value.exit_code == 75
    remote._opened.cache_clear()


def test_key_that_is_changed_is_used_by_the_next_request(
    shelf: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = Store(f"{shelf}/a")
    store.get("one")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    store.get("one")
    assert Shelf.keys == {"first", "second"}
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for name, section, key in (
        ("credentials", "default", "third"),
        ("credentials", "default", "fourth"),
        ("config", "profile work", "fifth"),
    ):
        fields = f"aws_access_key_id = {key}\naws_secret_access_key = {SECRET}%$\n"
        (tmp_path / name).write_text(f"[{section}]\n{fields}")
        if name == "config":
            monkeypatch.setenv("AWS_PROFILE", "work")
        store.get("one")
        assert key in Shelf.keys
    Store(f"s3://sixth:{SECRET}@sweeps/b").get("one")
    assert "sixth" in Shelf.keys
    monkeypatch.setenv("AWS_PROFILE", "play")
    with pytest.raises(InputError, match=naming("play", "config")):
        store.get("one")


@pytest.mark.parametrize(
    ("status", "code", "is_asked_again"),
    [
        *((status, "", True) for status in (429, 500, 502, 503, 504)),
        (409, "ConditionalRequestConflict", True),
        (400, "RequestTimeout", True),
        (400, "AuthorizationHeaderMalformed", False),
        (403, "AccessDenied", False),
        (404, "NoSuchBucket", False),
    ],
)
def test_store_refusal_is_asked_again_only_if_it_may_pass(
    status: int, code: str, is_asked_again: bool, shelf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(shelf)
    for ask in (
        lambda: store.get("one"),
        lambda: store.put("one", b"1"),
        lambda: store.put_new("one", b"1"),
    ):
        monkeypatch.setattr(Shelf, "status", status)
        monkeypatch.setattr(Shelf, "code", code)
        Shelf.n_refused = 2
        refused = remote.REFUSED.times
        if is_asked_again:
            ask()
            assert (Shelf.n_refused, remote.REFUSED.times) == (0, refused + 2)
            continue
        with pytest.raises(InputError, match=naming("s3://sweeps/one")) as raised:
            ask()
        assert (raised.value.exit_code, Shelf.n_refused) == (2, 1)


def test_requests_at_once_after_an_outage_are_all_sent_again(
    shelf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    Shelf.n_refused = 2 * N_AT_ONCE

    def ask(n: int) -> None:
        with pytest.raises(UnavailableError, match=naming("read")):
            Store(f"{shelf}/{n}").get("one")

    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        list(pool.map(ask, range(N_AT_ONCE)))
    assert Shelf.n_refused == 0
    Shelf.n_refused = 1
    assert Store(shelf).get("one") == b"rows"
    assert Shelf.n_refused == 0


def test_profile_that_needs_a_login_names_both_ways(
    shelf: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text("[default]\nsso_session = work\n")
    monkeypatch.setitem(__import__("sys").modules, "obstore.auth.boto3", None)
    with pytest.raises(InputError, match=naming("sso_session", "boto3", "export-credentials")):
        Store(shelf).get("one")


class Azure(BaseHTTPRequestHandler):
    """As much of Azure's protocol as a store uses of it; blobs are created once."""

    protocol_version = "HTTP/1.1"
    blobs: ClassVar[dict[str, bytes]] = {}

    def _answer(self, status: int, content: bytes = b"", part: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Wed, 11 Nov 2026 11:11:11 GMT")
        if part is not None:
            self.send_header("Content-Range", part)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    @property
    def blob(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/me/box/")

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["If-None-Match"] == "*" and self.blob in self.blobs:
            return self._answer(409, b"<Error><Code>BlobAlreadyExists</Code></Error>")
        self.blobs[self.blob] = content
        return self._answer(201)

    def do_GET(self) -> None:
        if "comp=list" in self.path:
            blobs = "".join(
                f"<Blob><Name>{path}</Name><Properties><Last-Modified>"
                "Wed, 11 Nov 2026 11:11:11 GMT</Last-Modified>"
                f"<Content-Type>x</Content-Type><Content-Length>{len(content)}</Content-Length><Etag>1</Etag></Properties></Blob>"
                for path, content in self.blobs.items()
            )
            listing = f"<EnumerationResults><Blobs>{blobs}</Blobs></EnumerationResults>"
            return self._answer(200, listing.encode())
        if (content := self.blobs.get(self.blob)) is None:
            return self._answer(404)
        if span := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or ""):
            start, end = int(span[1]), int(span[2]) + 1
            part = f"bytes {start}-{end - 1}/{len(content)}"
            return self._answer(206, content[start:end], part)
        return self._answer(200, content)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """A batch of deletions."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        parts = []
        for number, path in enumerate(re.findall(r"^DELETE /(?:me/)?box/(\S+) HTTP", body, re.M)):
            gone = self.blobs.pop(unquote(path), None) is not None
            head = f"Content-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
            status = "202 Accepted" if gone else "404 The specified blob does not exist."
            parts.append(f"--part\r\n{head}HTTP/1.1 {status}\r\n\r\n\r\n")
        content = f"{''.join(parts)}--part--\r\n".encode()
        self.send_response(202)
        self.send_header("Content-Type", "multipart/mixed; boundary=part")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: it is many lines."""


def test_store_on_azure_does_what_a_folder_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "cGxhbnRlZA==")
    with ThreadingHTTPServer(("127.0.0.1", 0), Azure) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}/me"
        store = Store(f"az://box/runs?account=me&scheme=http&endpoint_override={host}")
        assert store.put_new("t/one.json", b"first")
        assert not store.put_new("t/one.json", b"second")
        store.put("t/two [1].json", b"")
        assert (store.get("t/one.json"), store.get("t/one.json", 2)) == (b"first", b"st")
        assert store.get("t/two [1].json", 2) == b""
        assert store.sizes("t") == {"one.json": 5, "two [1].json": 0}
        store.drop("t/one.json")
        store.drop("t/one.json")
        assert not store.exists("t/one.json")
        server.shutdown()


def test_pauses_grow_and_are_drawn() -> None:
    drawn = [list(remote.pauses_s()) for _ in range(50)]
    assert all(len(pauses) == remote.ATTEMPTS - 1 for pauses in drawn)
    assert all(0 <= s < 2**n for pauses in drawn for n, s in enumerate(pauses))
    assert len({pauses[0] for pauses in drawn}) > 10

"""One contract for all stores: a folder, S3, Google's and Azure's stores do the same."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
import pytest

from factsweep.operators.errors import ArtifactHeldError
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.s3_server import serving

KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
N = count()


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
        if source := self.headers["x-ms-copy-source"]:
            content = self.blobs[unquote(urlsplit(source).path).removeprefix("/me/box/")]
        if self.headers["If-None-Match"] == "*" and self.blob in self.blobs:
            return self._answer(409, b"<Error><Code>BlobAlreadyExists</Code></Error>")
        self.blobs[self.blob] = content
        return self._answer(201)

    def do_GET(self) -> None:
        query = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if "comp" in query:
            return self._answer(200, self._listing(query.get("prefix", ""), "delimiter" in query))
        if (content := self.blobs.get(self.blob)) is None:
            return self._answer(404)
        if span := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or ""):
            start, end = int(span[1]), int(span[2]) + 1
            part = f"bytes {start}-{end - 1}/{len(content)}"
            return self._answer(206, content[start:end], part)
        return self._answer(200, content)

    do_HEAD = do_GET  # noqa: N815

    def _listing(self, prefix: str, is_flat: bool) -> bytes:
        found = {path: c for path, c in self.blobs.items() if path.startswith(prefix)}
        below = {path: "/" in path.removeprefix(prefix) and is_flat for path in found}
        files = "".join(
            f"<Blob><Name>{path}</Name><Properties><Last-Modified>"
            "Wed, 11 Nov 2026 11:11:11 GMT</Last-Modified><Content-Type>x</Content-Type>"
            f"<Content-Length>{len(found[path])}</Content-Length><Etag>1</Etag></Properties></Blob>"
            for path in found
            if not below[path]
        )
        tops = {f"{prefix}{p.removeprefix(prefix).partition('/')[0]}/" for p in found if below[p]}
        folders = "".join(f"<BlobPrefix><Name>{top}</Name></BlobPrefix>" for top in tops)
        blobs = f"<Blobs>{files}{folders}</Blobs>"
        return f"<EnumerationResults>{blobs}</EnumerationResults>".encode()

    def do_POST(self) -> None:
        """A batch of deletions."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        parts = []
        for number, path in enumerate(re.findall(r"^DELETE /(?:me/)?box/(\S+) HTTP", body, re.M)):
            existed = self.blobs.pop(unquote(path), None) is not None
            head = f"Content-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
            status = "202 Accepted" if existed else "404 The specified blob does not exist."
            parts.append(f"--part\r\n{head}HTTP/1.1 {status}\r\n\r\n\r\n")
        content = f"{''.join(parts)}--part--\r\n".encode()
        self.send_response(202)
        self.send_header("Content-Type", "multipart/mixed; boundary=part")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: it is many lines."""


@pytest.fixture(scope="module", params=["folder", "file", "memory", "s3", "gs", "az"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path or URL of a store of each kind, with a place for the name of a folder."""
    folder = tmp_path_factory.mktemp("store")
    if request.param in ("s3", "gs"):
        with serving(folder / "log", *(["google"] if request.param == "gs" else [])) as server:
            client = boto3.client("s3", endpoint_url=server.url, region_name="us-east-1", **KEYS)
            client.create_bucket(Bucket="sweeps")
            credentials = "key:secret" if request.param == "s3" else "anonymous"
            yield f"{request.param}://{credentials}@sweeps/{{}}?endpoint_override={server.url}"
    elif request.param == "az":
        with ThreadingHTTPServer(("127.0.0.1", 0), Azure) as azure:
            Thread(target=azure.serve_forever, daemon=True).start()
            host = f"127.0.0.1:{azure.server_port}/me"
            yield f"az://box/{{}}?account=me&scheme=http&endpoint_override={host}"
            azure.shutdown()
    else:
        schemes = {"folder": "", "file": "file://", "memory": "memory://"}
        yield f"{schemes[request.param]}{folder}/{{}}"


@pytest.fixture
def store(root: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store of each kind."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "cGxhbnRlZA==")
    return Store(root.format(f"store%20{next(N)}"))


def test_file_is_read_back_whole_or_its_end_and_replaced(store: Store) -> None:
    store.put("stage/table/one.parquet", b"old")
    store.put("stage/table/one.parquet", b"content")
    assert store.get("stage/table/one.parquet") == b"content"
    assert store.get("stage/table/one.parquet", 3) == b"ent"
    assert store.get("stage/table/one.parquet", 99) == b"content"
    assert store.exists("stage/table/one.parquet")
    store.put("empty", b"")
    assert store.get("empty") == store.get("empty", 2) == b""


def test_file_that_is_not_there_is_not_found(store: Store) -> None:
    store.put("a/one", b"1")
    for name in ("a/two", "b"):
        with pytest.raises(FileNotFoundError, match=name):
            store.get(name)
    assert not store.exists("a/two")


def test_json_is_read_back(store: Store) -> None:
    store.put_json("a.json", {"a": [1, None]})
    assert store.get_json("a.json", "a") == {"a": [1, None]}


def test_listings_have_files_folders_and_sizes(store: Store) -> None:
    for name in ("a/two", "a/one", "a/inner/three", "a/first/four"):
        store.put(name, name.encode())
    assert store.names("a") == ["one", "two"]
    assert store.folders("a") == ["first", "inner"]
    assert store.sizes("a") == {"two": 5, "one": 5, "inner/three": 13, "first/four": 12}
    assert [file.written > 1.7e9 for file in store.files("a/inner").values()] == [True]
    assert (store.names("no"), store.folders("no"), store.sizes("no")) == ([], [], {})


def test_put_new_old_name_is_left_alone(store: Store) -> None:
    assert store.put_new("a/one", b"first")
    assert not store.put_new("a/one", b"second")
    assert store.put_new("a/one", b"first")  # as one that was sent twice
    assert store.get("a/one") == b"first"


def test_put_new_several_at_once_publishes_exactly_one(store: Store) -> None:
    stores = [Store(store.root) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda n: stores[n].put_new("a/one", b"%d" % n), range(8)))
    assert [n for n, won in enumerate(created) if won] == [int(store.get("a/one"))]
    assert store.names("a") == ["one"]


def test_drop_known_and_unknown_name_leaves_neither(store: Store) -> None:
    for name in ("a/one", "a/two", "a/three"):
        store.put(name, b"")
    store.drop("a/one")
    store.drop("a/never")
    assert store.names("a") == ["three", "two"]
    store.drop("a/two", "a/never", "a/three")
    assert store.names("a") == []


def test_set_aside_keeps_the_content_of_files_and_folders(store: Store) -> None:
    for n in range(3):
        store.put("a/one", b"%d" % n)
        assert store.get(store.quarantine("a/one")) == b"%d" % n
    assert store.names("a/damaged") == ["one", "one.1", "one.2"]
    store.put("a/b/two", b"2")
    store.put("a/b/damaged/three", b"3")
    assert store.quarantine("a/b") == "a/damaged/b"
    assert store.get("a/damaged/b/two") == b"2"
    assert (store.names("a"), store.folders("a"), store.sizes("a")) == ([], [], {})
    store.quarantine("a/nothing")


@pytest.mark.parametrize("name", ["a[1]", "a*", "a?", "{a,b}", "a%41", "a#1", "a b", "a=b, c"])
def test_store_of_any_name_holds_its_own_files(store: Store, name: str) -> None:
    siblings = [Store(below(store.root, other)) for other in ("a1", "aA", "a", "ab", "aXb", "b")]
    for other in siblings:
        other.put("one", b"other")
    store_of_name = Store(below(store.root, name))
    assert (store_of_name.names(""), store_of_name.exists("one")) == ([], False)
    assert store_of_name.put_new("one", b"own")
    assert (store_of_name.get("one"), store_of_name.sizes(""), store_of_name.names("")) == (
        b"own",
        {"one": 3},
        ["one"],
    )
    assert name in store.folders("")
    store_of_name.quarantine("one")
    store_of_name.drop("damaged/one")
    assert [other.get("one") for other in siblings] == [b"other"] * len(siblings)


def test_lease_is_taken_over_and_its_holder_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "EXPIRES_S", 0.0)
    with lease.hold_leases(store, ["generations/f0"], wait=False) as ours:
        with lease.hold_leases(store, ["generations/f0"], wait=False) as theirs:
            theirs.leases["generations/f0"].check()
        with pytest.raises(ArtifactHeldError, match=naming("generations/f0")):
            ours.leases["generations/f0"].check()
    assert store.names("writers") == []

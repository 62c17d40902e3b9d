"""Object stores beyond the contract of all stores (test_stores): faults, keys, requests, URLs."""

import json
import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import ClassVar, NamedTuple

import boto3
import pytest

from factsweep.operators.errors import InputError, UnavailableError
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.results import past_runs, report
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage import object_store as remote
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.s3_server import Breaking, Line, bucket, serving

Settings = Callable[..., Run]
Compute = Callable[..., Plan]

SECRET = "wJalrXUtnFEMI-planted-secret"
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


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    for name, value in (("n_refused", 0), ("status", 503), ("code", ""), ("keys", set())):
        monkeypatch.setattr(Shelf, name, value)
    monkeypatch.setattr(remote, "pauses_s", lambda: [0.0] * (remote.ATTEMPTS - 1))
    with ThreadingHTTPServer(("127.0.0.1", 0), Shelf) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield "s3://sweeps"
        server.shutdown()


class S3(NamedTuple):
    url: str
    log: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    log = tmp_path_factory.mktemp("s3") / "requests.log"
    with serving(log) as moto:
        yield S3(moto.url, log)


@pytest.fixture
def swept(server: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    return bucket(server.url, monkeypatch)


READS: dict[str, tuple[Callable[[Store], object], object]] = {
    "whole": (lambda store: store.get("t/rows"), ROWS),
    "end": (lambda store: store.get("t/rows", 20_000), ROWS[-20_000:]),
    "names": (lambda store: len(store.names("many")), 40),
    "all below": (lambda store: len(store.files("")), 41),
}


@pytest.mark.parametrize("fault", ["ends", "resets", "stalls"])
def test_store_answer_that_breaks_off_is_asked_for_again_and_counted(
    fault: str, server: S3, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(remote, "pauses_s", lambda: [0.0, 0.0])
    if fault == "stalls":
        monkeypatch.setitem(remote._CLIENT, "read_timeout", "1s")
    remote._open_store.cache_clear()
    store = Store(f"{bucket(server.url, monkeypatch, f'breaking-{fault}')}/below")
    store.put("t/rows", ROWS)
    store.each(lambda n: store.put(f"many/{n}", b"1"), range(40))
    for name, (read, expected) in READS.items():
        with subtests.test(name=name):
            line = Breaking(server.url, fault, times=2, after=500)
            monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
            refused = remote.REFUSED.times
            assert read(store) == expected
            assert remote.REFUSED.times == refused + 2
            line = Breaking(server.url, fault, times=3, after=500)
            monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
            with pytest.raises(UnavailableError, match=naming("below", "network")) as raised:
                read(store)
            assert raised.value.exit_code == 75
    remote._open_store.cache_clear()


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


def test_profile_that_needs_a_login_names_both_ways(
    shelf: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text("[default]\nsso_session = work\n")
    monkeypatch.setitem(__import__("sys").modules, "obstore.auth.boto3", None)
    with pytest.raises(InputError, match=naming("sso_session", "boto3", "export-credentials")):
        Store(shelf).get("one")


def test_pauses_grow_and_are_drawn() -> None:
    samples = [list(remote.pauses_s()) for _ in range(50)]
    assert all(len(pauses) == remote.ATTEMPTS - 1 for pauses in samples)
    assert all(0 <= s < 2**n for pauses in samples for n, s in enumerate(pauses))
    assert len({pauses[0] for pauses in samples}) > 10


def test_shard_is_published_by_a_single_put(swept: str, server: S3) -> None:
    Store(swept).put("single/shard.parquet", b"1" * 2_000_000)
    requests = re.findall(r'"(PUT|POST) /sweeps/single/shard\.parquet(\S*)', server.log.read_text())
    assert requests == [("PUT", "")]


def test_drop_is_one_request(swept: str, server: S3) -> None:
    store = Store(f"{swept}/dropped")
    store.put("t/one", b"1")
    log_length = len(server.log.read_text())
    store.drop("t/one")
    store.drop("t/never-there")
    assert re.findall(r"([A-Z]+) /sweeps", server.log.read_text()[log_length:]) == [
        "DELETE",
        "DELETE",
    ]
    log_length = len(server.log.read_text())
    store.put("t/two", b"2")
    store.drop("t/one", "t/two")
    assert re.findall(r"([A-Z]+) /sweeps", server.log.read_text()[log_length:]) == ["PUT", "POST"]
    assert store.sizes("t") == {}


def test_put_new_credentials_and_endpoint_of_the_url_are_used(
    swept: str, server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    host = server.url.removeprefix("http://")
    for endpoint in (f"endpoint_override={host}&scheme=http", f"endpoint_override={server.url}"):
        options = f"{endpoint}&region=us-east-1"
        store = Store(f"s3://key:{SECRET}@sweeps/{len(options)}?{options}")
        assert store.put_new("one", b"first")
        assert not store.put_new("one", b"second")
        assert store.get("one") == b"first"


def test_secret_with_a_slash_is_refused_and_not_shown() -> None:
    with pytest.raises(InputError, match=naming("%2F")) as refusal:
        Store("s3://key:of/wJalrXUt@sweeps/x").names("")
    assert "wJalrXUt" not in str(refusal.value)


def test_path_that_no_object_can_have_is_one_sentence(swept: str) -> None:
    for ask in (lambda store: store.put("a", b"1"), lambda store: store.names("")):
        with pytest.raises(InputError, match=naming("sweeps/x//y", "empty path segment")):
            ask(Store(f"{swept}/x//y"))


def test_unknown_option_of_the_url_is_refused(swept: str) -> None:
    with pytest.raises(InputError, match=naming("s3://sweeps/x")):
        Store(f"{swept}/x?regoin=eu-west-1").names("")


ASKS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put("a", b"1"),
    "put_new": lambda store: store.put_new("a", b"1"),
    "get": lambda store: store.get("a"),
    "exists": lambda store: store.exists("a"),
    "names": lambda store: store.names("stage"),
    "sizes": lambda store: store.sizes("stage"),
    "drop": lambda store: store.drop("a"),
    "quarantine": lambda store: store.quarantine("a"),
}


@pytest.mark.parametrize("was_reached", [True, False])
def test_store_out_of_reach_is_one_sentence(
    was_reached: bool,
    swept: str,
    server: S3,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    line = Line(server.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
    store = Store(f"{swept}/out")
    if was_reached:
        store.put_new("a", b"1")
    line.cut()
    for name, ask in ASKS.items():
        with subtests.test(name), pytest.raises(UnavailableError) as refused:
            ask(store)
        assert re.match(r"s3://sweeps/out\S* cannot be .* check [^\n]*$", str(refused.value))


def test_missing_bucket_holds_nothing_and_is_one_sentence_where_it_is_written(swept: str) -> None:
    store = Store(f"{swept[:5]}no-such-bucket/x")
    assert (store.names("a"), store.folders(""), store.files("")) == ([], [], {})
    for method in (store.put, store.put_new):
        with pytest.raises(InputError, match=naming("s3://no-such-bucket/x/a", "check", "bucket")):
            method("a", b"1")


def test_objects_in_place_of_folders_are_no_files(swept: str) -> None:
    store = Store(f"{swept}/consoles")
    for key in ("consoles/", "consoles/stage/", "consoles/stage/inner/"):
        boto3.client("s3").put_object(Bucket="sweeps", Key=key)
    store.put("stage/inner/one", b"1")
    assert store.sizes("") == {"stage/inner/one": 1}
    assert (store.names("stage"), store.folders("stage")) == ([], ["inner"])


def test_folder_below_a_url_has_its_name_and_the_options(swept: str, server: S3) -> None:
    root = f"{swept}/results?region=us-east-1&scheme=http"
    root += f"&endpoint_override={server.url.removeprefix('http://')}"
    for name in ("n [1] {a}*? #%41, b", "n-1"):
        Store(below(root, name)).put("run.json", name.encode())
    assert Store(root).folders("") == ["n [1] {a}*? #%41, b", "n-1"]
    assert Store(root).get("n [1] {a}*? #%41, b/run.json") == b"n [1] {a}*? #%41, b"


@pytest.mark.slow
def test_run_credentials_in_the_url_are_left_out_of_what_is_written(
    swept: str, small_settings: Settings, compute_here: Compute, tmp_path: Path
) -> None:
    url = f"s3://key:{SECRET}@sweeps/in-url"
    options = [
        "decoding.samples.n_prompts=0",
        "decoding.canary_prompts=0",
        "cluster.rows_per_shard=99",
    ]
    run = small_settings(f"artifacts='{url}'", *options)
    report.write(compute_here(run), {"total": 0})
    record = json.loads((tmp_path / "results" / run.name / "run.json").read_text())
    assert record["run"]["artifacts"] == "s3://sweeps/in-url"
    assert SECRET not in json.dumps(record)
    # Later readers have credentials of their own, here those of the environment.
    (branch,) = past_runs.branches(run.results)
    assert branch.metrics.is_complete()

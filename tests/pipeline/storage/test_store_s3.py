"""The store on a real S3 protocol: moto's server, on this machine."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar, NamedTuple

import boto3
import pytest

from factsweep.operators.errors import ArtifactHeldError, InputError
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import past, report
from factsweep.pipeline.runs import run as runner
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage import object_store as remote
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.s3_server import Line, serving

Settings = Callable[..., Run]
Compute = Callable[..., Plan]
SECRET = "wJalrXUtnFEMI-planted-secret"


class Server(NamedTuple):
    url: str
    log: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("s3") / "requests.log"
    with serving(log) as serves:
        yield Server(serves.url, log)


@pytest.fixture
def bucket(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "planted-key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    boto3.client("s3", endpoint_url=server.url).create_bucket(Bucket="sweeps")
    return "s3://sweeps"


def test_shard_is_published_by_a_single_put(bucket: str, server: Server) -> None:
    Store(bucket).put("single/shard.parquet", b"1" * 2_000_000)
    requests = re.findall(r'"(PUT|POST) /sweeps/single/shard\.parquet(\S*)', server.log.read_text())
    assert requests == [("PUT", "")]


def test_store_lists_and_reads_what_was_put(bucket: str) -> None:
    store = Store(f"{bucket}/a")
    store.put("stage/f00/generations/P36.parquet", b"rows")
    assert store.names("stage/f00/generations") == ["P36.parquet"]
    assert store.folders("stage") == ["f00"]
    assert store.get("stage/f00/generations/P36.parquet") == b"rows"
    assert store.names("nowhere") == []


def test_missing_file_is_not_found(bucket: str) -> None:
    with pytest.raises(FileNotFoundError):
        Store(bucket).get("nothing")


def test_put_new_keeps_what_is_there(bucket: str) -> None:
    store = Store(bucket)
    assert store.put_new("lease.json", b"first")
    assert not store.put_new("lease.json", b"second")
    assert store.get("lease.json") == b"first"


def test_put_new_several_at_once_creates_exactly_one(bucket: str) -> None:
    stores = [Store(f"{bucket}/at-once") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        created = pool.map(lambda n: stores[n].put_new("one", b"%d" % n), range(8))
    assert [n for n, won in enumerate(created) if won] == [int(stores[0].get("one"))]


def test_put_new_credentials_and_endpoint_of_the_url_are_used(
    bucket: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    host = server.url.removeprefix("http://")
    for endpoint in (f"endpoint_override={host}&scheme=http", f"endpoint_override={server.url}"):
        options = f"{endpoint}&region=us-east-1"
        store = Store(f"s3://planted-key-id:{SECRET}@sweeps/{len(options)}?{options}")
        assert store.put_new("one", b"first")
        assert not store.put_new("one", b"second")
        assert store.get("one") == b"first"


def test_secret_with_a_slash_is_refused_and_not_shown() -> None:
    with pytest.raises(InputError, match=naming("%2F")) as refusal:
        Store("s3://key:of/wJalrXUt@sweeps/x").names("")
    assert "wJalrXUt" not in str(refusal.value)


def test_path_that_no_object_can_have_is_one_sentence(bucket: str) -> None:
    for ask in (lambda store: store.put("a", b"1"), lambda store: store.names("")):
        with pytest.raises(InputError, match=naming("sweeps/x//y", "empty path segment")):
            ask(Store(f"{bucket}/x//y"))


def test_put_new_missing_bucket_is_one_sentence(bucket: str) -> None:
    with pytest.raises(InputError, match=naming("s3://no-such-bucket/x/a", "check")):
        Store("s3://no-such-bucket/x").put_new("a", b"1")


def test_lease_is_taken_over_and_its_holder_is_told(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "EXPIRES_S", 0.0)
    store = Store(f"{bucket}/leases")
    with lease.held(store, ["generations/f0"], wait=False) as ours:
        with lease.held(store, ["generations/f0"], wait=False) as theirs:
            theirs.leases["generations/f0"].check()
        with pytest.raises(ArtifactHeldError, match=naming("leases/generations/f0")):
            ours.leases["generations/f0"].check()
    assert store.names("writers") == []


def test_damaged_file_is_set_aside(bucket: str) -> None:
    store = Store(bucket)
    store.put("t/shard.parquet", b"half")
    assert store.get(store.set_aside("t/shard.parquet")) == b"half"
    assert store.names("t") == []
    store.put("t/shard.parquet", b"other")
    assert store.get(store.set_aside("t/shard.parquet")) == b"other"
    assert store.get("t/damaged/shard.parquet") == b"half"


def test_folder_is_set_aside_with_all_that_is_in_it(bucket: str) -> None:
    store = Store(bucket)
    store.put("whole/t/one", b"1")
    store.put("whole/t/damaged/two", b"2")
    assert store.set_aside("whole/t") == "whole/damaged/t"
    assert store.get("whole/damaged/t/one") == b"1"
    assert store.sizes("whole") == {}


def test_missing_file_and_missing_bucket_are_told_apart(bucket: str) -> None:
    with pytest.raises(FileNotFoundError):
        Store(bucket).get("nothing")
    assert Store(bucket).sizes("nothing") == {}


def test_missing_bucket_is_one_sentence(bucket: str) -> None:
    with pytest.raises(InputError, match=naming("check", "bucket")):
        Store("s3://no-such-bucket/x").put("a", b"1")


ASKED: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put("a", b"1"),
    "put_new": lambda store: store.put_new("a", b"1"),
    "get": lambda store: store.get("a"),
    "exists": lambda store: store.exists("a"),
    "names": lambda store: store.names("stage"),
    "sizes": lambda store: store.sizes("stage"),
    "drop": lambda store: store.drop("a"),
    "set_aside": lambda store: store.set_aside("a"),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("was_reached", [True, False])
def test_store_out_of_reach_is_one_sentence(
    asked: str, was_reached: bool, bucket: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    line = Line(server.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
    store = Store(f"{bucket}/out")
    if was_reached:
        store.put_new("a", b"1")
        store.put("a", b"1")
    line.cut()
    with pytest.raises(InputError, match=r"^s3://sweeps/out\S* cannot be .* check ") as refused:
        ASKED[asked](store)
    assert "\n" not in str(refused.value)


def test_drop_is_one_request(bucket: str, server: Server) -> None:
    store = Store(f"{bucket}/dropped")
    store.put("t/one", b"1")
    before = len(server.log.read_text())
    store.drop("t/one")
    store.drop("t/never-there")
    assert re.findall(r"([A-Z]+) /sweeps", server.log.read_text()[before:]) == ["DELETE", "DELETE"]
    before = len(server.log.read_text())
    store.put("t/two", b"2")
    store.drop_all(["t/one", "t/two"])
    assert re.findall(r"([A-Z]+) /sweeps", server.log.read_text()[before:]) == ["PUT", "POST"]
    assert store.sizes("t") == {}


def test_name_with_escapes_is_read_as_it_was_written(bucket: str) -> None:
    store = Store(f"{bucket}/with%20blank")
    assert store.put_new("one", b"1")
    assert (store.get("one"), store.names("")) == (b"1", ["one"])


def test_objects_in_place_of_folders_are_no_files(bucket: str) -> None:
    store = Store(f"{bucket}/consoles")
    for key in ("consoles/", "consoles/stage/", "consoles/stage/inner/"):
        boto3.client("s3").put_object(Bucket="sweeps", Key=key)
    store.put("stage/inner/one", b"1")
    assert store.sizes("") == {"stage/inner/one": 1}
    assert (store.names("stage"), store.folders("stage")) == ([], ["inner"])


def test_bucket_that_is_not_there_holds_nothing(bucket: str) -> None:
    store = Store("s3://no-such-bucket/x")
    assert (store.names("a"), store.folders(""), store.files("")) == ([], [], {})


def test_folder_below_a_url_has_its_name_and_the_options(bucket: str, server: Server) -> None:
    root = f"{bucket}/results?region=us-east-1&scheme=http"
    root += f"&endpoint_override={server.url.removeprefix('http://')}"
    for name in ("n [1] {a}*? #%41, b", "n-1"):
        Store(below(root, name)).put("run.json", name.encode())
    assert Store(root).folders("") == ["n [1] {a}*? #%41, b", "n-1"]
    assert Store(root).get("n [1] {a}*? #%41, b/run.json") == b"n [1] {a}*? #%41, b"


def test_unknown_option_of_the_url_is_refused(bucket: str) -> None:
    with pytest.raises(InputError, match=naming("s3://sweeps/x")):
        Store(f"{bucket}/x?regoin=eu-west-1").names("")


class Failing(BaseHTTPRequestHandler):
    """An S3 server that is out of order for the first two requests, then stores one object."""

    protocol_version = "HTTP/1.1"
    answers = (503, 503, 200)
    seen: ClassVar[list[int]] = []

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status = self.answers[min(len(self.seen), 2)]
        self.seen.append(status)
        self.send_response(status)
        self.send_header("ETag", '"of-rows"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: pytest shows the statuses."""


def test_failed_upload_is_tried_again(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Failing) as failing:
        Thread(target=failing.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{failing.server_port}")
        refused = remote.REFUSED.times
        Store(bucket).put("shard.parquet", b"rows")
        failing.shutdown()
    assert Failing.seen == [503, 503, 200]
    assert remote.REFUSED.times == refused + 2


@pytest.mark.slow
def test_run_credentials_in_the_url_are_left_out_of_what_is_written(
    bucket: str, small_settings: Settings, compute_here: Compute, tmp_path: Path
) -> None:
    url = f"s3://planted-key-id:{SECRET}@sweeps/in-url"
    few = ["decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "cluster.rows_per_shard=99"]
    run = small_settings(f"artifacts='{url}'", *few)
    report.write(compute_here(run), {"total": 0})
    record = json.loads((tmp_path / "results" / run.name / "run.json").read_text())
    assert record["run"]["artifacts"] == "s3://sweeps/in-url"
    assert SECRET not in json.dumps(record)
    # Later readers have credentials of their own, here those of the environment.
    (branch,) = past.branches(run.results)
    assert branch.metrics.is_complete()


@pytest.mark.faults
def test_run_on_s3_is_resumed_and_writes_no_secret(bucket: str, tmp_path: Path) -> None:
    """The engine is fake: this is about where things are stored."""
    small = ["benchmark.relations=[P36]", "benchmark.pairs_per_relation=6", "prompt=zero-shot"]
    quick = ["decoding.engine=fake", "decoding.samples.n_prompts=0", "metrics.n_draws=100"]
    where = [f"artifacts={bucket}/run", f"results={tmp_path}", "run_name=s3"]
    settings = load([*small, *quick, *where])
    first = runner.run(settings)
    assert runner.run(settings).equals(first)
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    client = boto3.client("s3")
    objects = client.list_objects_v2(Bucket="sweeps")["Contents"]
    stored = b"".join(
        client.get_object(Bucket="sweeps", Key=o["Key"])["Body"].read() for o in objects
    )
    assert SECRET.encode() not in written + stored

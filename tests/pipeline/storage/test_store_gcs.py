"""The store on Google's XML protocol: tests/moto_server.py, on this machine."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest

from factsweep.operators.errors import ArtifactHeldError, InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.runs.run import measured
from factsweep.pipeline.runs.verify import verify
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage import object_store as remote
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.here import make_here
from tests.s3_server import Line, serving

Settings = Callable[..., Run]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("gcs") / "log", "google") as serves:
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        client = boto3.client("s3", endpoint_url=serves.url, region_name="us-east-1", **keys)
        client.create_bucket(Bucket="sweeps")
        yield serves.url


def at(url: str, folder: str) -> str:
    host = url.removeprefix("http://")
    return f"gs://anonymous@sweeps/{folder}?scheme=http&endpoint_override={host}"


def test_store_on_gcs_does_what_a_folder_does(server: str) -> None:
    store = Store(at(server, "some%20where"))
    store.put("stage/f00/generations/P36.parquet", b"rows")
    store.put("stage/f00/generations/damaged/P36.parquet", b"half")
    store.put("stage/f00/empty", b"")
    assert store.names("stage/f00/generations") == ["P36.parquet"]
    assert (store.folders("stage"), store.folders("stage/f00")) == (["f00"], ["generations"])
    assert store.sizes("stage/f00") == {"empty": 0, "generations/P36.parquet": 4}
    assert [each.written > 1.7e9 for each in store.files("stage/f00").values()] == [True] * 3
    assert (store.get("stage/f00/empty"), store.exists("stage/f00/empty")) == (b"", True)
    shard = "stage/f00/generations/P36.parquet"
    assert (store.get(shard, 2), store.get(shard, 9)) == (b"ws", b"rows")
    assert store.set_aside(shard).endswith("damaged/P36.parquet.1")
    assert store.names("stage/f00/generations") == store.names("nowhere") == []
    store.drop("stage/f00/empty")
    store.drop("stage/f00/never-there")
    assert not store.exists("stage/f00/empty")
    for name in ("stage/f00/empty", "stage/f00", "nothing"):
        with pytest.raises(FileNotFoundError, match=name):
            store.get(name)
    with pytest.raises(InputError, match=naming("region", "scheme")):
        Store("gs://b/a?region=x").names("")


def test_put_new_on_gcs_several_at_once_creates_exactly_one(server: str) -> None:
    stores = [Store(at(server, "at-once")) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        created = pool.map(lambda n: stores[n].put_new("one", b"%d" % n), range(8))
    assert [n for n, won in enumerate(created) if won] == [int(stores[0].get("one"))]


def test_lease_on_gcs_is_taken_over_and_its_holder_is_told(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "EXPIRES_S", 0.0)
    store = Store(at(server, "leases"))
    with lease.held(store, ["generations/f0"], wait=False) as ours:
        with lease.held(store, ["generations/f0"], wait=False) as theirs:
            theirs.leases["generations/f0"].check()
        with pytest.raises(ArtifactHeldError, match=naming("leases/generations/f0")):
            ours.leases["generations/f0"].check()
    assert store.names("writers") == []


@pytest.mark.slow
def test_run_on_gcs_is_whole_and_verified(server: str, small_settings: Settings) -> None:
    few = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "cluster.rows_per_shard=99")
    quick = ("metrics.n_draws=20", "metrics.n_rounds=20")
    run = small_settings(*few, *quick, f"artifacts='{at(server, 'run')}'")
    assert measured(run, make_here).equals(measured(run, make_here))
    assert verify(run).problems == []


def test_gcs_out_of_reach_is_one_sentence(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    line = Line(server)
    store = Store(at(line.url, "out"))
    store.put("a", b"1")
    line.cut()
    asks: list[Callable[[], object]] = [
        *(lambda: store.put("a", b"1"), lambda: store.put_new("a", b"1")),
        *(lambda: store.get("a"), lambda: store.exists("a"), lambda: store.drop("a")),
        *(lambda: store.names("stage"), lambda: store.set_aside("a")),
    ]
    for ask in asks:
        with pytest.raises(InputError, match=r"^gs://sweeps/out\S* cannot be .* check ") as refused:
            ask()
        assert not re.search(r"\n|anonymous", str(refused.value))

"""Where engines go on a cluster of several nodes, and what happens when one of these is lost.

The nodes are real raylets of this machine; the GPUs are only claimed, and the engine is fake: see
sweep.py.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from factsweep.operators.engines.fake import WISH
from factsweep.pipeline.cluster.ray_cluster import single_machine_options
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding.progress_counter import tally_actor
from factsweep.pipeline.doctor import examination
from factsweep.pipeline.runs import calibration
from tests.faults.sweep import ON_GPUS, OVERRIDES, SMALL, Sweep
from tests.messages import naming

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without GPUs."""
    with single_machine_options():
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def two_nodes(cluster: Cluster) -> Cluster:
    """Two nodes more that claim 4 GPUs each, and with which nothing has happened."""
    while len(cluster.worker_nodes) < 2:
        with single_machine_options():
            cluster.add_node(num_cpus=2, num_gpus=4)
    cluster.wait_for_nodes(timeout=120)
    return cluster


def sweep_on(cluster: Cluster, folder: Path, *overrides: str, **wish: Any) -> Sweep:
    places = {"places": str(folder / "places.jsonl")}
    address = f"cluster.address={cluster.address}"
    return Sweep(folder, (*ON_GPUS, address, *overrides), **places, **wish)


def placed(sweep: Sweep, n: int) -> list[dict[str, Any]]:
    """Where the engines of a sweep are put that ends well, once there are so many."""
    sweep.start().until(lambda: len(places(sweep.folder)) == n)
    outcome = sweep.finish()
    assert outcome.returncode == 0, outcome.stderr
    return places(sweep.folder)


def places(folder: Path) -> list[dict[str, Any]]:
    path = folder / "places.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_engines_share_gpus(two_nodes: Cluster, tmp_path: Path) -> None:
    shared = ("model.tensor_parallel=1", "model.replicas.per_gpu=2")
    four = ("model.replicas.min=4", "model.replicas.max=4", "cluster.rows_per_shard=25")
    engines = placed(sweep_on(two_nodes, tmp_path, *shared, *four, seconds_per_answer=0.5), 4)
    n_by_gpu = Counter((engine["node"], *engine["gpus"]) for engine in engines)
    assert sum(n_by_gpu.values()) == 4
    assert max(n_by_gpu.values()) == 2


def test_calibration_puts_engines_on_one_gpu_of_one_node(
    two_nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = {"places": str(tmp_path / "places.jsonl"), "seconds_per_answer": 0.01}
    monkeypatch.setenv(WISH, json.dumps(wish))
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(calibration, "LIMIT_S", 3.0)
    one = ("model.tensor_parallel=1", "model.billions_of_parameters=1", "cluster.hardware=H100")
    address = f"cluster.address={two_nodes.address}"
    *_, last = calibration.calibrate(load([*OVERRIDES, *ON_GPUS, *one, address]))
    engines = [(place["node"], *place["gpus"]) for place in places(tmp_path)]
    assert [len({*engines[:1]}), len({*engines[1:3]}), len({*engines[3:]})] == [1, 1, 1]
    assert len(engines) == 7
    assert "model.replicas.per_gpu=4" in last


def test_pipeline_parallel_replica_gets_a_placement_group(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    overrides = ("model.pipeline_parallel=2", "model.replicas.min=1", "model.replicas.max=1")
    outcome = sweep_on(two_nodes, tmp_path, *overrides).finish()
    assert outcome.returncode == 0, outcome.stderr
    (engine,) = places(tmp_path)
    assert sum(bundle.get("GPU", 0) for bundle in engine["bundles"]) == 8
    assert all(bundle.get("GPU", 0) <= 1 for bundle in engine["bundles"])


def test_node_that_is_lost_costs_only_what_was_in_flight(
    two_nodes: Cluster, calm_on_nodes: Sweep, tmp_path: Path
) -> None:
    calm = calm_on_nodes
    sweep = sweep_on(two_nodes, tmp_path / "lost", seconds_per_answer=0.05).start()
    sweep.until(lambda: len(sweep.answered()) >= 80)
    two_nodes.remove_node(next(iter(two_nodes.worker_nodes)), allow_graceful=False)
    outcome = sweep.finish()
    assert outcome.returncode == 0, outcome.stderr
    assert list(calm.tables().values()) == list(sweep.tables().values())
    assert len(sweep.answered()) <= len(calm.answered()) + 33


def test_tally_is_where_the_driver_is_and_is_restarted_when_it_dies(two_nodes: Cluster) -> None:
    ray.init(address=two_nodes.address)
    try:
        node_id = ray.get_runtime_context().get_node_id()
        tallies = [tally_actor(load([]).cluster) for _ in range(6)]
        assert {ray.get(tally.__ray_call__.remote(node_of)) for tally in tallies} == {node_id}
        tally = tallies[0]
        ray.get(tally.add.remote({"prompts": 1}))
        ray.kill(tally, no_restart=False)
        while "prompts" in ray.get(tally.read.remote())[0]:
            time.sleep(0.1)
        assert ray.get(tally.add.remote({"prompts": 2})) is False
        counts, notes = ray.get(tally.read.remote())
        assert (counts["prompts"], notes) == (2, [])
    finally:
        ray.shutdown()


def node_of(_actor: object) -> str:
    return str(ray.get_runtime_context().get_node_id())


def test_too_few_gpus_are_told_before_anything_loads(two_nodes: Cluster, tmp_path: Path) -> None:
    three = ("model.replicas.min=3", "model.replicas.max=3")
    outcome = sweep_on(two_nodes, tmp_path, *three).finish()
    assert outcome.returncode == 2
    assert "3 replicas × 4 GPUs = 12; the cluster has 8" in outcome.stderr
    assert not places(tmp_path)


def test_gpus_that_others_hold_end_the_wait(two_nodes: Cluster, tmp_path: Path) -> None:
    ray.init(address=two_nodes.address)
    try:
        holders = [ray.remote(num_gpus=4)(Holder).remote() for _ in range(2)]
        ray.get([holder.ready.remote() for holder in holders])
        outcome = sweep_on(two_nodes, tmp_path, "cluster.start_s=5").finish()
    finally:
        ray.shutdown()
    assert outcome.returncode == 1
    assert re.search(naming("2 replicas × 4 GPUs", "has 8", "0 of them free"), outcome.stderr)


class Holder:
    """Somebody else's work, on all GPUs of a node."""

    def ready(self) -> bool:
        """Whether it has started."""
        return True


@pytest.mark.chaos
def test_doctor_looks_at_every_node(
    two_nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = (f"artifacts={tmp_path}/a", f"results={tmp_path}/r")
    run = load([*SMALL, *places, f"cluster.address={two_nodes.address}", "cluster.device=cpu"])
    findings = list(examination.examine(run))
    by_node = Counter(
        finding.group.partition(": ")[0] for finding in findings if "(" in finding.group
    )
    assert (
        sum(finding.check == "open files" for finding in findings) == 1 + 3
    )  # the driver, and the nodes
    assert sum(finding.check == "shared with the driver" for finding in findings) == 3, by_node
    assert sum(finding.check == "GPUs" for finding in findings) == 2  # the head claims none
    assert not [finding for finding in findings if finding.state == "fails"]
    assert not list(tmp_path.rglob("seen"))

    @contextmanager
    def unseen(_: Run) -> Iterator[str]:
        yield "of-another-machine"

    monkeypatch.setattr(examination, "marker_file", unseen)
    fails = [finding for finding in examination.examine(run) if finding.state == "fails"]
    assert {finding.check for finding in fails} == {"shared with the driver"}
    assert all("is another folder here" in finding.fix for finding in fails)

"""A node of a real Ray that is taken away in the middle of a sweep, politely or not.

The node is that of a `ray start --block` on this machine, as in a pod or a step of a job; its GPUs
are only claimed, and the engine is fake: see sweep.py.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from ray.cluster_utils import Cluster

from factsweep.pipeline.cluster import job_request
from factsweep.pipeline.cluster.ray_cluster import LEAVING, single_machine_options
from tests.faults.sweep import ON_GPUS, Sweep, kill

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
NO_CHUNKS = (
    "cluster.rows_per_chunk=10000",  # none is ever full
    "cluster.seconds_per_chunk=3600",  # nor old
)
N_NODES = 2
IN_FLIGHT = 2  # prompts that an engine was handed when it stopped


@pytest.fixture(scope="module")
def head() -> Iterator[Cluster]:
    """A head that has four GPUs, and so an engine; nodes come to it and go."""
    with single_machine_options():
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 4})
    yield cluster
    cluster.shutdown()


@contextmanager
def joined(cluster: Cluster, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A second node with four GPUs, as a process of `ray start`."""
    ray = Path(sys.executable).with_name("ray")
    options = ["--num-cpus=2", "--num-gpus=4", "--min-worker-port=0", "--max-worker-port=0"]
    command = [ray, "start", "--block", f"--address={cluster.address}", *options]
    with subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as node:
        try:
            while n_alive(cluster) < N_NODES:
                assert node.poll() is None
                time.sleep(0.2)
            yield node
        finally:
            for process in family(node):
                kill(process)
            node.kill()
            while n_alive(cluster) == N_NODES:
                time.sleep(0.2)


def n_alive(cluster: Cluster) -> int:
    return sum(node["Alive"] for node in cluster.global_state.node_table())


def family(node: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """The processes of a node; none after its end."""
    try:
        return psutil.Process(node.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def at_work(cluster: Cluster, calm: Sweep, folder: Path, *overrides: str) -> Sweep:
    """A sweep with given prompts after both engines have answered many of them."""
    for stage in ("facts", "prompts", "admitted"):
        folder_made = Path(calm.store.root, stage)
        shutil.copytree(folder_made, folder / "artifacts" / stage)
    places = folder / "places.jsonl"
    options = (*ON_GPUS, *NO_CHUNKS, f"cluster.address={cluster.address}", *overrides)
    sweep = Sweep(folder, options, places=str(places), seconds_per_answer=0.1).start()
    sweep.until(lambda: places.exists() and len(places.read_text().splitlines()) == N_NODES)
    answered = len(sweep.answered())
    return sweep.until(lambda: len(sweep.answered()) > answered + 60)


def check(sweep: Sweep, calm: Sweep, n_more: int) -> None:
    """It ends well, with the same tables, and at most so many prompts were asked again."""
    outcome = sweep.finish()
    assert outcome.returncode == 0, outcome.stderr
    assert list(sweep.tables().values()) == list(calm.tables().values())
    assert len(sweep.answered()) <= len(calm.answered()) + n_more


def test_node_that_is_sent_sigterm_publishes_what_is_finished(
    head: Cluster, calm_on_nodes: Sweep, tmp_path: Path
) -> None:
    with joined(head) as node:
        sweep = at_work(head, calm_on_nodes, tmp_path)
        node.send_signal(signal.SIGTERM)
        check(sweep, calm_on_nodes, IN_FLIGHT)
        assert node.wait(60) is not None


@pytest.mark.chaos
def test_node_whose_hook_runs_publishes_before_it_is_killed(
    head: Cluster, calm_on_nodes: Sweep, tmp_path: Path
) -> None:
    """A pod runs the hook before it is stopped."""
    variables = {LEAVING: str(tmp_path / "leaving")}
    with joined(head, **variables) as node:
        sweep = at_work(head, calm_on_nodes, tmp_path / "sweep")
        hook = ["/bin/sh", "-c", job_request.leave(600)]
        subprocess.run(hook, env={**os.environ, **variables}, check=True)
        for process in family(node):
            kill(process)
        node.kill()
        check(sweep, calm_on_nodes, IN_FLIGHT)

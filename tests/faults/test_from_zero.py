"""A sweep on a cluster that has no worker before there is work, and none behind it.

The autoscaler is Ray's own, in the version that KubeRay runs; its nodes are processes of this
machine, with GPUs that are only claimed. The engine is fake: see sweep.py.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.head import Head, running
from tests.faults.sweep import SMALL, Sweep

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
MOST = 3
HEAD = "f" * 51 + "0" * 5  # as Ray's fake provider calls the node of its head
CONFIG = {
    "cluster_name": "growing",
    "max_workers": MOST,
    "idle_timeout_minutes": 0.1,
    "upscaling_speed": 1000,  # as of KubeRay
    "head_node_type": "ray.head.default",
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 2}, "node_config": {}, "max_workers": 0},
        "replicas": {"resources": {"CPU": 2, "GPU": 1}, "node_config": {}, "max_workers": MOST},
    },
    "provider": {
        "type": "external",
        "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
        "launch_multiple": True,
        "head_node_id": HEAD,
        "disable_node_updaters": True,
    },
    # What Ray has no default for, where the provider is none of its own.
    **{f"{which}setup_commands": [] for which in ("", "head_", "worker_")},
    **{f"{which}_start_ray_commands": [] for which in ("head", "worker")},
    **{name: [] for name in ("initialization_commands", "cluster_synced_files")},
    **{name: {} for name in ("auth", "docker", "file_mounts")},
    "file_mounts_sync_continuously": False,
}
VARIABLES = {
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": HEAD,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
}


class Growing:
    """A head with an autoscaler."""

    def __init__(self, head: Head) -> None:
        self.address, self._process = head.address, head.process
        self._log = head.folder / "ray/session_latest/logs/monitor.log"

    def became(self, kind: str = "replicas") -> list[str]:
        """The states of all nodes of a kind in order, from the log of the autoscaler."""
        log_text = self._log.read_text() if self._log.exists() else ""
        return re.findall(rf"(?:New instance |->)([A-Z_]+) \(.*\btype={re.escape(kind)},", log_text)

    def await_that(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + 600
        while not condition():
            assert self._process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)


def options(folder: Path, address: str) -> list[str]:
    provider = {**CONFIG["provider"], "gcs_address": address}  # type: ignore[dict-item]
    config = folder / "config.json"
    config.write_text(json.dumps({**CONFIG, "provider": provider}))
    sizes = ("--num-cpus=2", "--num-gpus=0", "--object-store-memory=100000000")
    return [*sizes, f"--autoscaling-config={config}"]


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Growing]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with running(options, **VARIABLES) as head:
        yield Growing(head)


def test_workers_come_all_at_once_when_there_is_work_and_go_behind_it(
    growing: Growing, tmp_path: Path
) -> None:
    growing.await_that(lambda: "RAY_RUNNING" in growing.became("ray.head.default"))
    growing_ray = ("cluster=ray", "cluster.launch.autoscales=true")
    options = (*growing_ray, "cluster.device=cuda", f"cluster.address={growing.address}")
    sizes = ("model.replicas.min=1", f"model.replicas.max={MOST}", "cluster.rows_per_shard=100")
    sweep = Sweep(tmp_path / "sweep", (*options, *SMALL, *sizes), seconds_per_answer=0.01).start()
    assert growing.became() == []
    sweep.until(lambda: growing.became().count("QUEUED") == MOST)
    outcome = sweep.finish()
    assert outcome.returncode == 0, outcome.stderr
    n_asked = growing.became().count("QUEUED")
    growing.await_that(lambda: growing.became().count("TERMINATED") == n_asked)
    states = growing.became()
    assert n_asked == states.count("QUEUED") == MOST
    assert "QUEUED" not in states[states.index("RAY_RUNNING") :]  # none waited for another

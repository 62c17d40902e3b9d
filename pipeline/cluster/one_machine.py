"""Ray Data on one machine: without the three actors that it starts for a cluster.

Each is a process, which takes a second to import Ray: one counts for a dashboard, one asks for
nodes, one remembers on which node an engine is. A Ray of our own has no dashboard and one node.
"""

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import ray
from ray.data._internal import stats
from ray.data._internal.cluster_autoscaler import ClusterAutoscaler
from ray.data._internal.execution import streaming_executor
from ray.data._internal.execution.interfaces import ExecutionResources
from ray.data._internal.execution.operators import actor_pool_map_operator as pools


def prepare() -> None:
    """Have this process ask none of the three."""
    stats.get_or_create_stats_actor = _Nobody
    manager = stats._StatsManager
    manager.gen_dataset_id_from_stats_actor = staticmethod(lambda: uuid4().hex)
    streaming_executor.create_cluster_autoscaler = lambda *_, **__: _NoMore()
    pools.get_or_create_actor_location_tracker = _Nobody
    pools.get_actor_locations = _all_here


class _Nobody:
    """An actor that is not there: nothing comes of what it is asked."""

    def __getattr__(self, name: str) -> "_Nobody":
        if name.startswith("__"):
            raise AttributeError(name)  # that of an object that is pickled
        return self

    def remote(self, *_: object, **__: object) -> None:
        """Do nothing."""


class _NoMore(ClusterAutoscaler):
    """What Ray Data may use is what the machine has; it gets no more."""

    def __init__(self) -> None:
        self._total = ExecutionResources.from_resource_dict(ray.cluster_resources())

    def try_trigger_scaling(self) -> None:
        """Ask for no node."""

    def on_executor_shutdown(self) -> None:
        """Give nothing back."""

    def get_total_resources(self) -> Any:
        """CPUs, GPUs and memory."""
        return self._total


def _all_here(engines: Iterable[str]) -> dict[str, str]:
    """The node of each engine: that of this process."""
    return dict.fromkeys(engines, ray.get_runtime_context().get_node_id())

"""How a sweep gets to a cluster: the section `launch` of conf/cluster/, a dataclass a kind."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class RayJob:
    """A Ray cluster that is there: the sweep is submitted to its job server."""

    kind: Literal["ray"]
    job_server: str | None


@dataclass(frozen=True)
class Slurm:
    """A batch job that starts a Ray over its nodes; what is null is left to Slurm."""

    kind: Literal["slurm"]
    nodes: int | None
    gpus_per_node: int
    cpus_per_node: int
    memory: str | None
    time: str
    stop_s: int
    partition: str | None
    account: str | None
    options: tuple[str, ...]
    setup: tuple[str, ...]


@dataclass(frozen=True)
class Pod:
    """What a pod asks of its node, its GPUs aside."""

    cpus: int
    memory: str


@dataclass(frozen=True)
class KubeRay:
    """A RayJob: a Ray cluster of pods that lasts as long as the sweep."""

    kind: Literal["kuberay"]
    namespace: str | None
    image: str
    head: Pod
    worker: Pod
    shared_memory: str
    node_selector: dict[str, Any] | None
    tolerations: tuple[dict[str, Any], ...]
    service_account: str | None
    secret: str | None
    env: dict[str, Any] | None
    cache_claim: str | None
    idle_s: int
    stop_s: int
    attempts: int

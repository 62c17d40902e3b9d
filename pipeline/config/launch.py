"""How a sweep gets to a cluster: the section `launch` of conf/cluster/, one dataclass per kind."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from factsweep.pipeline.config.limits import AnyText, SlurmTime, Text, WholeSeconds

Cpus = Annotated[int, Field(ge=1, le=10_000)]


@dataclass(frozen=True)
class RayJob:
    """A running Ray cluster: the sweep is submitted to its job server."""

    kind: Literal["ray"]
    job_server: Text | None
    autoscales: bool = False  # as earlier runs have it


@dataclass(frozen=True)
class Slurm:
    """A batch job that starts a Ray over its nodes; what is null is left to Slurm."""

    kind: Literal["slurm"]
    nodes: Annotated[int, Field(ge=1, le=100_000)] | None
    gpus_per_node: Annotated[int, Field(ge=0, le=1_000)]
    gpu_type: Text | None
    cpus_per_node: Cpus
    memory: Text | None
    time: SlurmTime
    stop_s: WholeSeconds
    requeues: Annotated[int, Field(ge=0, le=1_000)]
    interface: Text | None
    partition: Text | None
    account: Text | None
    options: tuple[Text, ...]
    setup: tuple[AnyText, ...]
    metrics_port: Annotated[int, Field(ge=1024, le=65_535)] | None = None  # as earlier runs have it


@dataclass(frozen=True)
class Pod:
    """What a pod asks of its node, its GPUs aside; `pod` goes into its specification."""

    cpus: Cpus
    memory: Text
    pod: dict[str, Any] | None


@dataclass(frozen=True)
class KubeRay:
    """A RayJob: a Ray cluster of pods that lasts as long as the sweep."""

    kind: Literal["kuberay"]
    namespace: Text | None
    image: Text
    head: Pod
    worker: Pod
    shared_memory: Text
    node_selector: dict[str, Any] | None
    tolerations: tuple[dict[str, Any], ...]
    service_account: Text | None
    pull_secrets: tuple[Text, ...]
    secret: Text | None
    env: dict[str, Any] | None
    cache_claim: Text | None
    idle_s: WholeSeconds
    stop_s: WholeSeconds
    attempts: Annotated[int, Field(ge=0, le=1_000)]

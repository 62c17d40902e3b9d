"""Where the work is done (conf/cluster/), and how it gets there; nothing here changes a number."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from factsweep.pipeline.config.recipe import (
    AnyText,
    Count,
    NoNumber,
    Seconds,
    SlurmTime,
    Text,
    WholeSeconds,
)

Cpus = Annotated[int, Field(ge=1, le=10_000)]


@dataclass(frozen=True)
class RayJob:
    """A running Ray cluster: the sweep is submitted to its job server."""

    kind: Literal["ray"]
    job_server: Text | None
    autoscales: bool = False  # as earlier runs have it


@dataclass(frozen=True)
class Slurm:
    """A batch job that starts a Ray over its nodes; null fields are left to Slurm."""

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
    serve: Text | None = None  # likewise


@dataclass(frozen=True)
class Pod:
    """The cores and memory of a pod; `pod` goes into its specification."""

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


_WHERE = NoNumber("it says where the work is done, not what is done")
_PATIENCE = NoNumber("it says when to stop waiting for an engine, not what an engine answers")
_SAVED = NoNumber("it says how often finished answers are saved, not what they are")
_FORECAST = NoNumber("only `plan` reads it, to predict how long a run takes")
Launch = Annotated[RayJob | Slurm | KubeRay, Field(discriminator="kind")]


@dataclass(frozen=True)
class Cluster:
    """Where the work is done (conf/cluster/); nothing here changes a number."""

    address: Annotated[Text | None, _WHERE]
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        NoNumber("model.dtype, which `auto` settles from it, is part of a recipe as settled"),
    ]
    num_cpus: Annotated[Cpus | None, _WHERE]
    rows_per_shard: Annotated[
        Count, NoNumber("it cuts the prompts into work items, and changes none of them")
    ]
    rows_per_chunk: Annotated[Count, _SAVED]
    seconds_per_chunk: Annotated[Seconds, _SAVED]
    max_deaths: Annotated[int, Field(ge=1, le=1_000), _PATIENCE]
    stall_s: Annotated[Seconds, _PATIENCE]
    start_s: Annotated[Seconds, _PATIENCE]
    when_held: Annotated[
        Literal["leave", "wait"], NoNumber("it says what to do while another run writes")
    ]
    cpu_kvcache_gib: Annotated[
        int, Field(ge=1, le=10_000), NoNumber("it is the memory of the prefix cache, no more")
    ]
    answers_per_s: Annotated[Annotated[float, Field(gt=0, le=1e9)] | None, _FORECAST]
    launch: Annotated[Launch | None, _WHERE]
    hardware: Annotated[Text | None, _FORECAST]

    @property
    def autoscales(self) -> bool:
        """Whether nodes come when engines ask for them, as pods do; none may be there before."""
        is_declared = isinstance(self.launch, RayJob) and self.launch.autoscales
        return is_declared or isinstance(self.launch, KubeRay)

"""Where the work is done (conf/cluster/); nothing here changes a number."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from factsweep.pipeline.config.launch import KubeRay, RayJob, Slurm
from factsweep.pipeline.config.limits import Count, Seconds, Text
from factsweep.pipeline.config.recipe import NoNumber

_WHERE = NoNumber("it says where the work is done, not what is done")
_PATIENCE = NoNumber("it says when to stop waiting for an engine, not what an engine answers")
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
    num_cpus: Annotated[Annotated[int, Field(ge=1, le=10_000)] | None, _WHERE]
    rows_per_shard: Annotated[
        Count, NoNumber("it cuts the prompts into work items, and changes none of them")
    ]
    rows_per_chunk: Annotated[
        Count, NoNumber("it says how often finished answers are saved, not what they are")
    ]
    seconds_per_chunk: Annotated[
        Seconds, NoNumber("it says how often finished answers are saved, not what they are")
    ]
    max_deaths: Annotated[int, Field(ge=1, le=1_000), _PATIENCE]
    stall_s: Annotated[Seconds, _PATIENCE]
    start_s: Annotated[Seconds, _PATIENCE]
    page_every_s: Annotated[
        Seconds | None, NoNumber("it says how often the page of a run that goes on is renewed")
    ]
    when_held: Annotated[
        Literal["leave", "wait"], NoNumber("it says what to do while another run writes")
    ]
    cpu_kvcache_gib: Annotated[
        int, Field(ge=1, le=10_000), NoNumber("it is the memory of the prefix cache, no more")
    ]
    answers_per_s: Annotated[Annotated[float, Field(gt=0, le=1e9)] | None, _FORECAST]
    launch: Annotated[Launch | None, _WHERE]
    hardware: Annotated[Text | None, _FORECAST]
    weights_gib: Annotated[Annotated[float, Field(gt=0, le=1e9)] | None, _WHERE] = None

    @property
    def autoscales(self) -> bool:
        """Whether nodes come when engines ask for them, as pods do; none may be there before."""
        asked = isinstance(self.launch, RayJob) and self.launch.autoscales
        return asked or isinstance(self.launch, KubeRay)

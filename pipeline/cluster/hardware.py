"""Hardware: what the engines of a run hold, GPUs or cores, and whether they can compute there."""

import os
from dataclasses import dataclass
from math import ceil
from urllib.parse import urlsplit

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster.prices import Prices
from factsweep.pipeline.config import described
from factsweep.pipeline.config.cluster import Cluster
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import processor


@dataclass(frozen=True)
class Hardware:
    """What one engine holds and is paid for; `named` takes the place of what it finds itself on."""

    gpus: int
    cores: int
    tensor_parallel: int
    named: str | None = None
    per_gpu: int = 1
    prices: Prices | None = None  # of a server that counts tokens instead

    @property
    def name(self) -> str:
        """What its seconds were measured on; asked where the engine is."""
        return self.named or (processor.gpu() if self.gpus else processor.cpu())


def device(cluster: Cluster) -> str:
    """`cuda` where the vLLM that is installed is the CUDA build, else `cpu`."""
    return processor.device(cluster.device)


def gpus_per_engine(run: Run) -> int:
    """The GPUs that one replica of the model holds."""
    if device(run.cluster) == "cpu" or run.engine.gpus == "none":
        return 0
    if run.engine.gpus == "one":
        return 1
    return run.model.tensor_parallel * run.model.pipeline_parallel


def most_engines(run: Run) -> int:
    """How many engines may answer at once: of one machine's CPUs, no more than there must be.

    An engine computes with every core there, and a second one only waits for those of the first.
    """
    replicas = run.model.replicas
    on_cores = device(run.cluster) == "cpu" and run.engine.gpus != "none"
    return replicas.min if on_cores and run.cluster.address is None else replicas.max


def computes_on_cores(run: Run) -> bool:
    """Whether an engine computes with the cores of its machine, and wants them all.

    A fake one takes a core of Ray's as they do, and computes nothing.
    """
    return device(run.cluster) == "cpu" and run.engine.computes


def sets_of_gpus(run: Run, replicas: int) -> int:
    """How many times the GPUs of an engine that many replicas need, some of which may share."""
    return ceil(replicas / run.model.replicas.per_gpu)


def hardware(run: Run) -> Hardware:
    """What one replica of the model is paid for: its GPUs, or else the cores; a server's, none."""
    if run.model.endpoint is not None and run.engine.name == "endpoint":
        name = f"endpoint {urlsplit(run.model.endpoint).netloc}"
        return Hardware(0, 0, 1, name, prices=prices(run.model))
    gpus = gpus_per_engine(run)
    n_cores = 0 if gpus else cores(run.cluster)
    shared = run.model.replicas.per_gpu if gpus else 1
    return Hardware(gpus, n_cores, run.model.tensor_parallel, run.engine.hardware, shared)


def prices(model: Model) -> Prices | None:
    """What a server charges for its tokens, if that is known."""
    if model.price_in is None or model.price_out is None:
        return None
    return Prices(model.price_in, model.price_out)


def cores(cluster: Cluster) -> int:
    """The cores of this machine that a run may take."""
    return cluster.num_cpus or os.cpu_count() or 1


def check_weights(run: Run, model: Model) -> None:
    """Refuse weights that the engine cannot load or compute with here; `model` has its type."""
    described.check(model, device(run.cluster), run.engine.name)
    if run.engine.name == "vllm":
        described.check_wrapper(model)


def check_build(run: Run) -> None:
    """Refuse to do on CPUs what was meant for GPUs, and is paid as such."""
    if device(run.cluster) == "cuda" and (built := run.engine.cpu_build()) is not None:
        raise InputError(
            f"cluster.device=cuda, and {built} is installed here, which computes on CPUs alone; "
            "install the CUDA build (make setup DEVICE=cuda), or give cluster.device=cpu."
        )

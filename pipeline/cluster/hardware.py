"""Hardware: what the engines of a run hold and cost, and the variables of their processes."""

import itertools
import os
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import described
from factsweep.pipeline.config.cluster import Cluster
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import processor

_AROUND = 64  # tokens that a chat template may put around a prompt
# A worker inherits these; none of them is a secret.
_QUIET = {
    "VLLM_LOGGING_LEVEL": "INFO",  # into the engine's own log, where one looks for what hangs
    "VLLM_NO_USAGE_STATS": "1",
    "TOKENIZERS_PARALLELISM": "true",
    "TRANSFORMERS_VERBOSITY": "error",
    "RAY_TQDM": "0",
}
# glibc would hand what is larger than 32 MiB back to the kernel, and fetch it again, at every step:
# the logits of 256 prompts are. What threads have of their own ends at 64 MiB.
_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(256 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(512 * 2**20),
}


class Prices(NamedTuple):
    """Per million tokens of prompts and of answers."""

    prompt: float
    output: float

    def of(self, prompt_tokens: float, output_tokens: float) -> float:
        """What so many tokens cost.

        >>> Prices(2.0, 10.0).of(500_000, 1000)
        1.01
        """
        return (prompt_tokens * self.prompt + output_tokens * self.output) / 1e6

    def at_most(self, text: str, output_tokens: int) -> float:
        """What an answer to a text costs at most: no tokenizer makes more tokens than bytes."""
        return self.of(len(text.encode()) + _AROUND, output_tokens)


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


def variables(run: Run, *, offline: bool = False) -> dict[str, str]:
    """The environment variables of the workers; `offline`: they must not ask the hub."""
    found = run.engine.switches(os.environ) | _QUIET
    if device(run.cluster) == "cpu":
        found |= _cpu_engine(run)
    if computes_on_cores(run):
        found |= _MEMORY
    found["VLLM_BATCH_INVARIANT"] = str(int(run.decoding.determinism == "batch_invariant"))
    found |= {name: os.environ[name] for name in run.engine.variables if name in os.environ}
    # A model on this machine needs no hub, and must not wait for one.
    model, is_here = run.model, run.model.source != "hub"
    if model.source == "endpoint" and model.tokenizer is not None:
        is_here = Path(model.tokenizer).is_dir()
    if offline or is_here or os.environ.get("HF_HUB_OFFLINE") == "1":
        found["HF_HUB_OFFLINE"] = "1"
    return found


def _cpu_engine(run: Run) -> dict[str, str]:
    n_cores, parts = cores(run.cluster), run.model.tensor_parallel
    found = {
        # In one process: a second one would share the two cores and slow both down.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(run.cluster.cpu_kvcache_gib),
        # Ray would set it to the actor's CPUs, which is 1, and OpenMP reads it when torch is
        # imported; the CPU kernels want every core.
        "OMP_NUM_THREADS": str(max(1, n_cores // parts)),
    }
    if parts > 1:
        # Each of vLLM's workers has cores of its own.
        bounds = [n_cores * part // parts for part in range(parts + 1)]
        spans = [f"{low}-{high - 1}" for low, high in itertools.pairwise(bounds)]
        found["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(spans)
    return found

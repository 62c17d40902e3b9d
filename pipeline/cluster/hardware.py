"""Hardware: the GPUs, cores and prices of engines, and the variables of their processes."""

import itertools
import os
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import model_metadata
from factsweep.pipeline.config.cluster import Cluster
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import processor

_AROUND = 64  # tokens that a chat template may put around a prompt
_QUIET = {
    "VLLM_LOGGING_LEVEL": "INFO",  # into the engine's own log, for finding hangs
    "VLLM_NO_USAGE_STATS": "1",
    "TOKENIZERS_PARALLELISM": "true",
    "TRANSFORMERS_VERBOSITY": "error",
    "RAY_TQDM": "0",
}
# glibc would return blocks above 32 MiB to the kernel, and allocate them again, at every step: the
# logits of 256 prompts are larger. Arenas of threads end at 64 MiB.
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
        """The cost of so many tokens.

        >>> Prices(2.0, 10.0).of(500_000, 1000)
        1.01
        """
        return (prompt_tokens * self.prompt + output_tokens * self.output) / 1e6

    def at_most(self, text: str, output_tokens: int) -> float:
        """The maximal cost of an answer to a text: no tokenizer makes more tokens than bytes."""
        return self.of(len(text.encode()) + _AROUND, output_tokens)


@dataclass(frozen=True)
class Hardware:
    """The hardware of one engine; `named` replaces the name of the GPU or CPU that it runs on."""

    gpus: int
    cores: int
    tensor_parallel: int
    named: str | None = None
    per_gpu: int = 1
    prices: Prices | None = None  # of a server that counts tokens instead

    @property
    def name(self) -> str:
        """The name of the hardware; read in the engine's process."""
        return self.named or (processor.gpu() if self.gpus else processor.cpu())


def gpus_per_engine(run: Run) -> int:
    """The GPUs that one replica of the model holds."""
    if run.device == "cpu" or run.engine.gpus == "none":
        return 0
    if run.engine.gpus == "one":
        return 1
    return run.model.tensor_parallel * run.model.pipeline_parallel


def most_engines(run: Run) -> int:
    """The maximal number of engines; on the CPUs of one machine, the minimal one.

    An engine computes with every core, so that a second one would only wait.
    """
    replicas = run.model.replicas
    on_cores = run.device == "cpu" and run.engine.gpus != "none"
    return replicas.min if on_cores and run.cluster.address is None else replicas.max


def computes_on_cores(run: Run) -> bool:
    """Whether an engine computes with all cores of its machine, unlike fake ones."""
    return run.device == "cpu" and run.engine.computes


def sets_of_gpus(run: Run, replicas: int) -> int:
    """How many times the GPUs of one engine that many replicas need; some may share a GPU."""
    return ceil(replicas / run.model.replicas.per_gpu)


def hardware(run: Run) -> Hardware:
    """The hardware of one replica: its GPUs, or else the cores; of a server, none."""
    urls = run.model.urls
    if run.model.endpoint is not None and run.engine.name == "endpoint":
        # A job starts the servers of a pool on other nodes each time: their number is what counts.
        name = f"endpoint {urlsplit(urls[0]).netloc if len(urls) == 1 else f'{len(urls)} servers'}"
        return Hardware(0, 0, 1, name, prices=prices(run.model))
    gpus = gpus_per_engine(run)
    n_cores = 0 if gpus else cores(run.cluster)
    shared = run.model.replicas.per_gpu if gpus else 1
    return Hardware(gpus, n_cores, run.model.tensor_parallel, run.engine.hardware, shared)


def prices(model: Model) -> Prices | None:
    """The prices of a server's tokens, if they are known."""
    if model.price_in is None or model.price_out is None:
        return None
    return Prices(model.price_in, model.price_out)


def cores(cluster: Cluster) -> int:
    """The cores of this machine that a run may take."""
    return cluster.num_cpus or os.cpu_count() or 1


def check_weights(run: Run, model: Model) -> None:
    """Refuse weights that the engine cannot load or compute with here; `model` has its type."""
    model_metadata.check(model, run.device, run.engine.name)
    if run.engine.name == "vllm":
        model_metadata.check_wrapper(model)


def check_build(run: Run) -> None:
    """Refuse a CPU build on machines with GPUs, and a real engine for a model without weights."""
    if run.model.source == "absent" and run.engine.name != "fake":
        raise InputError(
            f"model={run.model.name} has no weights here (model.source=absent), for plans and "
            "rehearsals alone; leave model.source out."
        )
    if run.device == "cuda" and (built := run.engine.cpu_build()) is not None:
        raise InputError(
            f"cluster.device=cuda, and {built} is installed here, which computes on CPUs alone; "
            "install the CUDA build (make setup DEVICE=cuda), or give cluster.device=cpu."
        )


def worker_variables(run: Run, *, offline: bool = False) -> dict[str, str]:
    """The environment variables of the workers; `offline`: they must not ask the hub."""
    model, n_parts = run.model, run.model.tensor_parallel
    variables = run.engine.switches(os.environ) | _QUIET
    if run.device == "cpu":
        n_cores = cores(run.cluster)
        variables |= {
            # In one process: a second one would share the two cores and slow both down.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": str(run.cluster.cpu_kvcache_gib),
            # Ray would set it to the actor's CPUs, which is 1, and OpenMP reads it when torch is
            # imported; the CPU kernels need every core.
            "OMP_NUM_THREADS": str(max(1, n_cores // n_parts)),
        }
        if n_parts > 1:  # each of vLLM's workers has cores of its own
            bounds = [n_cores * part // n_parts for part in range(n_parts + 1)]
            spans = [f"{low}-{high - 1}" for low, high in itertools.pairwise(bounds)]
            variables["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(spans)
    if computes_on_cores(run):
        variables |= _MEMORY
    variables["VLLM_BATCH_INVARIANT"] = str(int(run.decoding.determinism == "batch_invariant"))
    variables |= {name: os.environ[name] for name in run.engine.variables if name in os.environ}
    # A model on this machine needs no hub, and must not wait for one.
    is_here = model.source != "hub"
    if model.source == "endpoint" and model.tokenizer is not None:
        is_here = Path(model.tokenizer).is_dir()
    if offline or is_here or os.environ.get("HF_HUB_OFFLINE") == "1":
        variables["HF_HUB_OFFLINE"] = "1"
    return variables

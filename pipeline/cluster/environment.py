"""Environment: the variables of the workers, by which an engine's libraries are set."""

import itertools
import os
from pathlib import Path

from factsweep.pipeline.cluster.hardware import computes_on_cores, cores, device
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run

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


def variables(run: Run, *, offline: bool = False) -> dict[str, str]:
    """The environment variables of the workers; `offline`: they must not ask the hub."""
    found = run.engine.switches(os.environ) | _QUIET
    if device(run.cluster) == "cpu":
        found |= _cpu_engine(run)
    if computes_on_cores(run):
        found |= _MEMORY
    found["VLLM_BATCH_INVARIANT"] = str(int(run.decoding.determinism == "batch_invariant"))
    asked = (name for name in run.engine.variables if name in os.environ)
    found |= {name: os.environ[name] for name in asked}
    if offline or _is_offline(run.model):
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


def _is_offline(model: Model) -> bool:
    """A model on this machine needs no hub, and must not wait for one."""
    if model.source == "endpoint" and model.tokenizer is not None:
        return Path(model.tokenizer).is_dir() or os.environ.get("HF_HUB_OFFLINE") == "1"
    return model.source != "hub" or os.environ.get("HF_HUB_OFFLINE") == "1"

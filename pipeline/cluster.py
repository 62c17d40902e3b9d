"""Ray: started here or found at an address, and what the workers' environment must hold."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from operators.errors import InputError
from pipeline.settings import Cluster, Model, Run

# A worker inherits these; none of them is a secret.
_CPU_ENGINE = {
    # In one process: a second one would share the two cores and slow both down.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "{cpu_kvcache_gib}",
    # Ray would set it to the actor's CPUs, which is 1, and OpenMP reads it when torch is imported;
    # the CPU kernels want every core.
    "OMP_NUM_THREADS": "{cores}",
}
_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "TOKENIZERS_PARALLELISM": "true",
    "TRANSFORMERS_VERBOSITY": "error",
    "RAY_TQDM": "0",
}


def device(cluster: Cluster) -> str:
    """`cuda` where the vLLM that is installed is the CUDA build, else `cpu`."""
    if cluster.device != "auto":
        return cluster.device
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return "cpu"
    return "cuda"


def gpus_per_engine(run: Run) -> int:
    """The GPUs that one replica of the model holds."""
    if device(run.cluster) == "cpu" or run.decoding.engine == "fake":
        return 0
    return run.model.tensor_parallel * run.model.pipeline_parallel


def environment(run: Run) -> dict[str, str]:
    """The environment variables of the workers."""
    variables = dict(_QUIET)
    if device(run.cluster) == "cpu":
        values = {
            "cpu_kvcache_gib": run.cluster.cpu_kvcache_gib,
            "cores": run.cluster.num_cpus or os.cpu_count(),
        }
        variables |= {name: value.format(**values) for name, value in _CPU_ENGINE.items()}
    if _is_offline(run.model):
        variables["HF_HUB_OFFLINE"] = "1"
    return variables


def _is_offline(model: Model) -> bool:
    """A model that lies on this machine needs no hub, and must not wait for one."""
    return model.source != "hub" or os.environ.get("HF_HUB_OFFLINE") == "1"


@contextmanager
def started(run: Run) -> Iterator[None]:
    """A running Ray for the time of the block.

    Raises:
        InputError: no Ray answers at cluster.address, or it lacks what an engine needs.
    """
    import ray

    # Ray starts workers at nice 15, behind its own dashboard; the engines are what it is here for.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # One warning of Ray's: that it will leave CUDA_VISIBLE_DEVICES alone, which is what we want.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray.init(
            address=run.cluster.address,
            num_cpus=None if run.cluster.address else run.cluster.num_cpus,
            include_dashboard=False if run.cluster.address is None else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": environment(run)},
        )
    except ConnectionError as error:
        raise InputError(
            f"no Ray answers at cluster.address={run.cluster.address}; start one there "
            "(`ray start --head`) or leave the address out."
        ) from error
    # A scheduler's polite stop is the same wish as Ctrl-C; Ray has just set a handler of its own.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _check_room(run, ray.cluster_resources())
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        ray.shutdown()


def _check_room(run: Run, resources: dict[str, float]) -> None:
    """Before anything loads: are there as many GPUs as the smallest pool needs?"""
    each, replicas = gpus_per_engine(run), run.model.replicas.min
    there = int(resources.get("GPU", 0))
    if each * replicas > there:
        raise InputError(
            f"{replicas} replicas × {each} GPUs = {each * replicas}; the cluster has {there}. "
            "Set model.replicas.min or model.tensor_parallel lower, or add GPUs."
        )

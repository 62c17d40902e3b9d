"""What is asked of any cluster: the command that it runs, and the engines that it must hold."""

import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from operators.errors import InputError
from pipeline.config import folders
from pipeline.config.settings import Run
from pipeline.execution.cluster import gpus_per_engine, sets_of_gpus


def command(overrides: Sequence[str]) -> str:
    """The command line of the sweep, quoted for a shell.

    >>> command(["model=llama3-8b", "benchmark.relations=[P17, P36]"])
    "factsweep run model=llama3-8b 'benchmark.relations=[P17, P36]'"
    """
    folder = folders.own()
    own = [] if folder is None else ["--config-dir", str(folder)]
    return shlex.join(["factsweep", "run", *own, *overrides])


def check_no_own_folder() -> None:
    """Refuse a folder of configuration that only this machine could see.

    Raises:
        InputError: it names the folder.
    """
    if (folder := folders.own()) is not None:
        raise InputError(
            f"the configuration in {folder} does not go along with the job; give what it says as "
            "overrides, and launch where there is no such folder."
        )


def check_no_credentials(run: Run) -> None:
    """Refuse a secret in a URL: what is rendered can be read by many.

    Raises:
        InputError: it names the override.
    """
    for name in ("artifacts", "results"):
        if "@" in urlsplit(getattr(run, name)).netloc:
            raise InputError(
                f"{name}=… has credentials in its URL, which everybody could read who sees the "
                "job; leave them out, and put them in the environment that the job runs in."
            )


def check_reachable(run: Run, *, shared_folders: bool) -> None:
    """Refuse artifacts or results that only this machine could see.

    Raises:
        InputError: it names the override and what it may be.
    """
    for name in ("artifacts", "results"):
        place = getattr(run, name)
        if "://" in place and not place.startswith("file:"):
            continue
        if not shared_folders:
            raise InputError(
                f"{name}={place} is a folder, which no pod can see; give an object store, such as "
                f"{name}=s3://bucket/{name}."
            )
        if not place.startswith("/"):
            raise InputError(
                f"{name}={place} is relative to a folder of this machine; give an object store, or "
                "the absolute path of a folder that all nodes share."
            )


def nodes(run: Run, gpus_per_node: int) -> int:
    """The nodes that hold model.replicas.max engines; without GPUs one engine per node.

    The GPUs of one replica are on one node, unless it is pipeline-parallel.

    Raises:
        InputError: a node has fewer GPUs than a replica holds.
    """
    each, replicas = gpus_per_engine(run), run.model.replicas.max
    if each == 0:
        return replicas
    if gpus_per_node >= 1 and run.model.pipeline_parallel > 1:
        return -(-each * replicas // gpus_per_node)
    if each > gpus_per_node:
        raise InputError(
            f"a replica of {run.model.name} holds {each} GPUs, and a node has "
            f"cluster.launch.gpus_per_node={gpus_per_node}; raise one, or set "
            "model.tensor_parallel lower."
        )
    return -(-sets_of_gpus(run, replicas) // (gpus_per_node // each))

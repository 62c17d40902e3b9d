"""Jobs for any cluster: the command that it runs, and the number of nodes."""

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster.hardware import gpus_per_engine, sets_of_gpus
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import compose_config
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import models
from factsweep.pipeline.machine.logs import LOG

_COMMIT = re.compile(r"[0-9a-f]{40}")
_LEAVE = Path(__file__).with_name("leave.sh").read_text("utf-8")


def command(overrides: Sequence[str], verb: str = "run") -> str:
    """The command line of the sweep, or of another verb for it, quoted for a shell.

    >>> command(["model=llama3-8b", "benchmark.relations=[P17, P36]"])
    "factsweep run model=llama3-8b 'benchmark.relations=[P17, P36]'"
    """
    folder = folders.own_folder()
    options = [] if folder is None else ["--config-dir", str(folder)]
    return shlex.join(["factsweep", verb, *options, *overrides])


def status(overrides: Sequence[str], verb: str) -> str:
    """The command line that prints the progress; of a study, even if some runs fail.

    >>> status(["sizes", "model=gpt2,gpt2-xl"], "study")
    'factsweep study sizes status model=gpt2,gpt2-xl || true'
    """
    if verb != "study":
        return command(overrides, "status")
    name, *values = overrides
    return f"{command([name, 'status', *values], verb)} || true"


def encoded_command(overrides: Sequence[str], verb: str = "run") -> str:
    r"""The command line of the sweep in characters that several programs in turn leave unchanged.

    Versions of KubeRay split it or not, a bash parses it, `ray job submit` quotes it again, and the
    head's shell parses that.

    >>> encoded_command(['decoding.stop=["\\n"]', "~metrics"])
    'factsweep run --percent-encoded decoding.stop=%5B%22%5Cn%22%5D %7Emetrics'
    """
    encoded = (
        quote(override, safe="=,:/@+", errors="surrogateescape").replace("~", "%7E")
        for override in overrides
    )
    return " ".join(["factsweep", verb, "--percent-encoded", *encoded])


def decode_overrides(overrides: Sequence[str]) -> list[str]:
    """The overrides of an encoded command."""
    return [unquote(override, errors="surrogateescape") for override in overrides]


def resolve_overrides(run: Run, overrides: Sequence[str]) -> list[str]:
    """The overrides, with the commit of a branch and the GPUs of a replica resolved once, here.

    Other fields that depend on hardware are left to the driver, which runs where the hardware is.

    Raises:
        InputError: the GPUs of a replica would depend on this machine's.
    """
    model, resolved = run.model, [*overrides, *gpus(run, overrides)]
    if model.source == "hub" and not _COMMIT.fullmatch(model.revision):
        try:
            resolved.append(f"model.revision={models.find_hub_commit(model.id, model.revision)[0]}")
        except InputError as error:
            LOG.warning(
                "%s The sweep resolves model.revision=%s itself, again at every start; give a "
                "commit to keep it to one.",
                error,
                model.revision,
            )
    return resolved


def gpus(run: Run, overrides: Sequence[str]) -> list[str]:
    """The GPUs of a replica by the named hardware; refused if by this machine's."""
    chosen = compose_config(overrides)["model"]["tensor_parallel"]
    if chosen is not None or run.cluster.device == "cpu" or run.model.architecture == "encoder":
        return []
    if run.cluster.hardware is None:
        raise InputError(
            f"model.tensor_parallel of {run.model.name} is open, and would be chosen for the GPU "
            "of this machine; give model.tensor_parallel, or the cluster's GPU as in "
            "cluster.hardware=H100."
        )
    is_cuda = run.cluster.device == "cuda"
    return [f"model.tensor_parallel={run.model.tensor_parallel}"] if is_cuda else []


def leave(within_s: int) -> str:
    """Shell commands for a node that is being removed: its engines publish finished answers."""
    return f"within_s={within_s}\n{_LEAVE}"


def check_no_own_folder() -> None:
    """Refuse a folder of configuration, which only this machine can see."""
    if (folder := folders.own_folder()) is not None:
        raise InputError(
            f"the configuration in {folder} does not go along with the job; give its fields as "
            "overrides, and launch where there is no such folder."
        )


def check_no_credentials(run: Run) -> None:
    """Refuse a secret in a URL: many can read the rendered job."""
    for name in ("artifacts", "results"):
        if "@" in urlsplit(getattr(run, name)).netloc:
            raise InputError(
                f"{name}=… has credentials in its URL, which all who see the job could read; "
                "leave them out, and put them in the environment that the job runs in."
            )


def check_reachable(run: Run, *, shared_folders: bool) -> None:
    """Refuse artifacts or results that only this machine could see."""
    for name in ("artifacts", "results"):
        root = getattr(run, name)
        is_folder = "://" not in root or root.startswith("file:")
        if is_folder and not shared_folders:
            raise InputError(
                f"{name}={root} is a folder, which no pod can see; give an object store, such as "
                f"{name}=s3://bucket/{name}."
            )
        if is_folder and not root.startswith("/"):
            raise InputError(
                f"{name}={root} is relative to a folder of this machine; give an object store, or "
                "the absolute path of a folder that all nodes share."
            )


def nodes(run: Run, gpus_per_node: int) -> int:
    """The nodes that hold model.replicas.max engines; without GPUs one engine per node."""
    n_gpus, replicas = gpus_per_engine(run), run.model.replicas.max
    if n_gpus == 0:
        return replicas
    if gpus_per_node >= 1 and run.model.pipeline_parallel > 1:
        return -(-n_gpus * replicas // gpus_per_node)
    if n_gpus > gpus_per_node:
        raise InputError(
            f"a replica of {run.model.name} holds {n_gpus} GPUs, and a node has "
            f"cluster.launch.gpus_per_node={gpus_per_node}; raise one, or set "
            "model.tensor_parallel lower."
        )
    return -(-sets_of_gpus(run, replicas) // (gpus_per_node // n_gpus))


def pipe_to(command: Sequence[str], text: str) -> str:
    """Pipe the text to the command, and return its output."""
    name = command[0]
    try:
        process = subprocess.run(
            command, input=text, capture_output=True, encoding="utf-8", check=True
        )
    except FileNotFoundError as error:
        raise InputError(
            f"{name} is not on this machine; launch where it is, or take the output of --dry-run "
            "there."
        ) from error
    except subprocess.CalledProcessError as error:
        reason = " ".join(error.stderr.split()) or f"exit code {error.returncode}"
        raise InputError(f"{name} did not take the job: {reason.rstrip('.')}.") from error
    return process.stdout.strip()

"""What is asked of any cluster: the command that it runs, and the engines that it must hold."""

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster.hardware import gpus_per_engine, sets_of_gpus
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import composed
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
    folder = folders.own()
    own = [] if folder is None else ["--config-dir", str(folder)]
    return shlex.join(["factsweep", verb, *own, *overrides])


def status(overrides: Sequence[str], verb: str) -> str:
    """The command line that says how far that is; of a study, whatever is wrong with some runs.

    >>> status(["sizes", "model=gpt2,gpt2-xl"], "study")
    'factsweep study sizes status model=gpt2,gpt2-xl || true'
    """
    if verb != "study":
        return command(overrides, "status")
    name, *others = overrides
    return f"{command([name, 'status', *others], verb)} || true"


def encoded_command(overrides: Sequence[str], verb: str = "run") -> str:
    r"""The command line of the sweep where several programs read it one after the other.

    KubeRay splits it or does not, by its version, a bash reads what comes of it, `ray job submit`
    quotes that again, and the head's shell reads it. None of them changes what is left here.

    >>> encoded_command(['decoding.stop=["\\n"]', "~metrics"])
    'factsweep run --percent-encoded decoding.stop=%5B%22%5Cn%22%5D %7Emetrics'
    """
    encoded = (
        quote(each, safe="=,:/@+", errors="surrogateescape").replace("~", "%7E")
        for each in overrides
    )
    return " ".join(["factsweep", verb, "--percent-encoded", *encoded])


def decoded(overrides: Sequence[str]) -> list[str]:
    """The overrides of an encoded command as they were given."""
    return [unquote(each, errors="surrogateescape") for each in overrides]


def handed_on(run: Run, overrides: Sequence[str]) -> list[str]:
    """The overrides, and what is settled once, here, in place of at every start.

    What depends on hardware is left to the driver, who is where the hardware is: this machine may
    have no GPU, or another one.

    Raises:
        InputError: the GPUs of a replica would depend on this machine's.
    """
    return [*overrides, *gpus(run, overrides), *_commit(run)]


def gpus(run: Run, overrides: Sequence[str]) -> list[str]:
    """The GPUs of a replica, where they follow from the hardware that is named.

    Raises:
        InputError: they would depend on this machine's.
    """
    given = composed(overrides)["model"]["tensor_parallel"]
    if given is not None or run.cluster.device == "cpu" or run.model.architecture == "encoder":
        return []
    if run.cluster.hardware is None:
        raise InputError(
            f"model.tensor_parallel of {run.model.name} is open, and would be chosen for the GPU "
            "of this machine; give model.tensor_parallel, or the cluster's GPU as in "
            "cluster.hardware=H100."
        )
    settled = run.cluster.device == "cuda"
    return [f"model.tensor_parallel={run.model.tensor_parallel}"] if settled else []


def _commit(run: Run) -> list[str]:
    """The commit that a branch of the hub means now, so that all starts decode the same model."""
    model = run.model
    if model.source != "hub" or _COMMIT.fullmatch(model.revision):
        return []
    try:
        return [f"model.revision={models.hub_commit(model.id, model.revision)[0]}"]
    except InputError as error:
        LOG.warning(
            "%s The sweep resolves model.revision=%s itself, anew at every start; give a commit to "
            "keep it to one.",
            error,
            model.revision,
        )
        return []


def leave(within_s: int) -> str:
    """Lines for the shell of a node that is about to go: its engines publish what is finished."""
    return f"within_s={within_s}\n{_LEAVE}"


def check_no_own_folder() -> None:
    """Refuse a folder of configuration that only this machine could see."""
    if (folder := folders.own()) is not None:
        raise InputError(
            f"the configuration in {folder} does not go along with the job; give what it says as "
            "overrides, and launch where there is no such folder."
        )


def check_no_credentials(run: Run) -> None:
    """Refuse a secret in a URL: what is rendered can be read by many."""
    for name in ("artifacts", "results"):
        if "@" in urlsplit(getattr(run, name)).netloc:
            raise InputError(
                f"{name}=… has credentials in its URL, which everybody could read who sees the "
                "job; leave them out, and put them in the environment that the job runs in."
            )


def check_reachable(run: Run, *, shared_folders: bool) -> None:
    """Refuse artifacts or results that only this machine could see."""
    for name in ("artifacts", "results"):
        place = getattr(run, name)
        is_folder = "://" not in place or place.startswith("file:")
        if is_folder and not shared_folders:
            raise InputError(
                f"{name}={place} is a folder, which no pod can see; give an object store, such as "
                f"{name}=s3://bucket/{name}."
            )
        if is_folder and not place.startswith("/"):
            raise InputError(
                f"{name}={place} is relative to a folder of this machine; give an object store, or "
                "the absolute path of a folder that all nodes share."
            )


def nodes(run: Run, gpus_per_node: int) -> int:
    """The nodes that hold model.replicas.max engines; without GPUs one engine per node.

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


def handed(command: Sequence[str], text: str) -> str:
    """Pipe the text to the command, and return its output.

    Raises:
        InputError: the command is not on this machine, or it refuses.
    """
    name = command[0]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, encoding="utf-8", check=True
        )
    except FileNotFoundError as error:
        raise InputError(
            f"{name} is not on this machine; launch where it is, or take there what --dry-run "
            "prints."
        ) from error
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.split()) or f"exit code {error.returncode}"
        raise InputError(f"{name} did not take the job: {said.rstrip('.')}.") from error
    return done.stdout.strip()

"""A batch job of Slurm that starts a Ray over its nodes: a header from the config, and slurm.sh."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster import order
from factsweep.pipeline.cluster.hardware import gpus_per_engine
from factsweep.pipeline.config.cluster import Slurm
from factsweep.pipeline.config.run import Run

_LEAVE_S = 20  # of the 30 seconds that Slurm gives a step that it ends
BODY = Path(__file__).with_name("slurm.sh").read_text("utf-8")


def rendered(run: Run, overrides: Sequence[str], verb: str = "run") -> str:
    """The batch script.

    Raises:
        InputError: a node has fewer GPUs than a replica of the model holds.
    """
    launch = run.cluster.launch
    assert isinstance(launch, Slurm)
    # Of the installation that launches: what the login node has, the nodes see too.
    path = f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *(f"#SBATCH {_whole(option)}" for option in _options(run, launch)),
            "",
            path,
            *launch.setup,
            f"sweep() {{ exec {order.command(overrides, verb)}; }}",
            f"status={shlex.quote(order.status(overrides, verb))}",
            f'logs="$PWD"/{shlex.quote(_name(run))}-"$SLURM_JOB_ID".logs',
            f"interface={shlex.quote(launch.interface or '')}",
            f"metrics_port={launch.metrics_port or ''}",
            f"requeues={launch.requeues}",
            f"leave={shlex.quote(order.leave(_LEAVE_S))}",
            "",
            BODY,
        ]
    )


def submitted(_launch: Slurm, text: str) -> str:
    """Put the script into the queue; returns what sbatch says.

    Raises:
        InputError: there is no sbatch here, or it refuses.
    """
    return order.handed(["sbatch"], text)


def _name(run: Run) -> str:
    """Of the job, its log, and the folder of the logs of Ray and of the engines beside that."""
    return f"factsweep-{run.name.replace('/', '-')}"  # of a study: Slurm makes no folder


def _whole(option: str) -> str:
    """An option that is one line of the script."""
    if len(option.splitlines()) != 1:
        raise InputError(f"{option!r} has a line break, and an option of sbatch is one line.")
    return option


def _options(run: Run, launch: Slurm) -> Iterator[str]:
    name = shlex.quote(_name(run))
    yield f"--job-name={name}"
    yield f"--output={name}-%j.log"
    yield "--open-mode=append"
    yield f"--nodes={launch.nodes or order.nodes(run, launch.gpus_per_node)}"
    yield "--ntasks-per-node=1"
    yield f"--cpus-per-task={launch.cpus_per_node}"
    if gpus_per_engine(run):
        kind = f"{launch.gpu_type}:" if launch.gpu_type else ""
        yield f"--gpus-per-node={kind}{launch.gpus_per_node}"
    for name in ("memory", "time", "partition", "account"):
        if (value := getattr(launch, name)) is not None:
            yield f"--{'mem' if name == 'memory' else name}={value}"
    yield "--requeue"
    yield "--no-kill"  # a node that fails takes none of the others along
    yield f"--signal=B:USR1@{launch.stop_s}"
    yield from launch.options

"""The verb `launch`: a sweep, on the cluster that `cluster=` names."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factsweep.pipeline.commands import doctor, run
from factsweep.pipeline.commands.arguments import Parser

if TYPE_CHECKING:
    from factsweep.pipeline.config.run import Run


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    text = "submit a run to the cluster that cluster= names: local, ray, slurm or kuberay"
    launch = verbs.add_parser(
        "launch",
        description=text,
        examples=[
            "factsweep launch model=llama3-70b cluster=slurm --dry-run",
            "factsweep launch model=llama3-70b cluster=slurm --doctor",
        ],
    )
    launch.take(keys=None, run=_launch)
    launch.flag("--dry-run", "print the job, script or manifest, and submit nothing")
    look = "run `factsweep doctor` there in place of the sweep: what every node lacks"
    launch.flag("--doctor", look)
    engine = "with --doctor: start the engine there, ask 200 of its prompts, and ask them again"
    launch.flag("--load", engine)
    launch.set_defaults(json=False, report=None)


def _launch(asked: argparse.Namespace) -> int:
    from factsweep.operators.errors import InputError
    from factsweep.pipeline.cluster import order
    from factsweep.pipeline.config.settings import load

    if asked.load and not asked.doctor:
        raise InputError("--load is a look of the doctor's: launch --doctor --load.")
    settings = load(asked.overrides)
    verb = "doctor" if asked.doctor else "run"
    if settings.cluster.launch is None:
        if not asked.dry_run:
            return doctor.execute(asked) if asked.doctor else run.execute(asked)
        print(order.command(asked.overrides, verb))
        return 0
    order.check_no_credentials(settings)
    overrides = [*order.handed_on(settings, asked.overrides), *(["--load"] * asked.load)]
    print(handed_over(settings, overrides, verb, dry_run=asked.dry_run))
    return 0


def handed_over(settings: "Run", overrides: Sequence[str], verb: str, *, dry_run: bool) -> str:
    """Submit a verb to the cluster of a run; returns what to do next, or else the job itself."""
    from factsweep.pipeline.cluster import order
    from factsweep.pipeline.cluster.hardware import check_build
    from factsweep.pipeline.cluster.launchers import LAUNCHERS
    from factsweep.pipeline.machine import secrets

    launch = settings.cluster.launch
    assert launch is not None
    launcher = LAUNCHERS[launch.kind]
    if launch.kind == "slurm" and not dry_run:  # the nodes have this very installation
        check_build(settings)
    text = launcher.rendered(settings, overrides, verb)
    # What is rendered may have the overrides in another form, in which no secret can be told.
    secrets.refuse(f"{order.command(overrides, verb)}\n{text}", "what would be submitted")
    return text.rstrip("\n") if dry_run else str(launcher.submitted(launch, text))

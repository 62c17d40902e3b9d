"""The verb `study`: many models, checkpoints and seeds as one piece of work."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from factsweep.operators.errors import InputError
from factsweep.operators.wording import count, listed
from factsweep.pipeline.commands.arguments import Parser, shown

if TYPE_CHECKING:
    from factsweep.pipeline.studies.study import Study

# What each run of a study is asked instead of to be computed.
_VERBS = ("plan", "status", "verify", "launch", "doctor")
_REPORT = "report"
_FIELDS = ("axis", "reference", "known_share", "full")


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    study = verbs.add_parser(
        "study",
        description="measure many models, checkpoints and seeds as one piece of work",
        examples=[
            "factsweep study pythia benchmark=myriadlama budget=1%",
            "factsweep study mine model=gpt2,gpt2-xl seed=0,1,2 --axis size",
            "factsweep study training 'model=glob(checkpoints/step-*)' --axis step",
            "factsweep study tongues benchmark=xfactr benchmark.path=DIR benchmark.language=de,fr "
            "--axis language",
            "factsweep study pythia plan budget=1%",
        ],
    )
    study.take(
        "study",
        rest="action",
        keys=None,
        about="STUDY is one of conf/study/, or a new name; overrides are for each of its runs, and "
        "may give several values in Hydra's grammar (a,b,c, range(0,3), glob(steps/*)). ACTION "
        f"is what is done with each: run (default), {', '.join(_VERBS)}, or report, which asks "
        "nothing. A run that fails ends nothing but itself; then the exit code is its own.",
        run=_study,
    )
    axis = (
        "what runs stand along: size, date, step, language or a field of a run; default: as given"
    )
    study.option("--axis", axis)
    study.option("--reference", "the run that others are compared with; default: first")
    share = "a fact is known with more than this share of its prompts right; default: 0.5"
    study.option("--known-share", share, type=float)
    full = "with a budget: so many runs are asked all prompts, and are the controls of the others"
    study.option("--full", full, type=int, metavar="N")
    one = "with launch: all runs in one job, one after the other, in place of one job for each"
    study.flag("--one-job", one)
    study.flag("--dry-run", "with launch: print the jobs, and submit nothing")


def _study(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.studies.study import study

    given = {name: getattr(asked, name) for name in _FIELDS}
    found = study(asked.study, asked.overrides, **given)
    action = asked.action[0] if asked.action else "run"
    if len(asked.action) > 1 or action not in (*_VERBS, _REPORT, "run"):
        known = listed(("run", *_VERBS, _REPORT))
        raise InputError(f"a study cannot {' '.join(asked.action)}; it can {known}.")
    if action != "launch" and (asked.one_job or asked.dry_run):
        raise InputError("--one-job and --dry-run say how a study is launched: study NAME launch.")
    if asked.one_job:
        return _one_job(found, asked)
    if action == "launch" and found.is_estimated and found.plan.full:
        raise InputError("full chooses among all runs of a study; launch it as --one-job.")
    if action in _VERBS:
        return _each(found, action, ["--dry-run"] * asked.dry_run)
    return _measure(found, ask=action == "run")


def _one_job(found: "Study", asked: argparse.Namespace) -> int:
    """Submit all runs of a study as one job."""
    from factsweep.pipeline.cluster import order
    from factsweep.pipeline.cluster.hardware import gpus_per_engine
    from factsweep.pipeline.commands.run import handed_over

    run = replace(max((e.run for e in found.members), key=gpus_per_engine), name=found.name)
    launch = run.cluster.launch
    if launch is None or launch.kind == "kuberay":
        raise InputError("--one-job is for cluster=slurm and cluster=ray; leave it out.")
    if launch.kind == "slurm" and launch.nodes is None:
        raise InputError(
            "--one-job needs the nodes that the job may have; give cluster.launch.nodes."
        )
    for each in found.members:
        order.check_no_credentials(each.run)
        order.gpus(each.run, each.overrides)
        if launch.kind == "slurm":
            order.nodes(each.run, launch.gpus_per_node)
    given = {name: getattr(asked, name) for name in _FIELDS}
    options = [
        f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None
    ]
    overrides = [found.name, *asked.overrides, *options]
    print(handed_over(run, overrides, "study", dry_run=asked.dry_run))
    return 0


def _each(found: "Study", verb: str, options: Sequence[str]) -> int:
    """Do what a verb does with each run; the exit code is the largest."""
    from factsweep.pipeline.commands.command_line import main

    codes = []
    for each in found.members:
        print(f"{each.run.name}:", flush=True)
        codes.append(main([verb, *each.overrides, *options]))
    return max(codes)


def _measure(found: "Study", *, ask: bool) -> int:
    """Compute what is missing, write what the runs say together, and print it."""
    from factsweep.operators.tables.formats import markdown
    from factsweep.pipeline.studies import asking, results

    failed = asking.ask(found) if ask else []
    if not any(each.is_answered for each in found.members):
        raise failed[0].error if failed else InputError(f"no run of {found.name} has results yet.")
    written = results.write(found)
    for table in written.tables:
        print(shown(f"\n{markdown(table)}"))
    print("\n".join(written.lines))
    for each in failed:
        print(f"factsweep: {each.label} failed: {each.error}", file=sys.stderr)
    missing = sum(not each.is_answered for each in found.members)
    print(f"{found.name}: {count(len(found.members) - missing, 'run')}, {missing:,} missing")
    return max((each.error.exit_code for each in failed), default=0)

"""The verbs `study`, `nightly` and `baseline`: several runs as one piece of work."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from factsweep.operators.errors import InputError
from factsweep.operators.wording import count, join_list
from factsweep.pipeline.commands.arguments import Parser, places, shown
from factsweep.pipeline.commands.compare import lost_and_gained

if TYPE_CHECKING:
    from factsweep.pipeline.studies.night import Judged, Night
    from factsweep.pipeline.studies.study import Study

# What each run of a study is asked instead of to be computed.
_VERBS = ("plan", "status", "verify", "launch", "doctor")
_REPORT = "report"
_FIELDS = ("axis", "reference", "known_share", "full")


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verbs to the command line."""
    _add_nightly(verbs)
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
        known = join_list(("run", *_VERBS, _REPORT))
        raise InputError(f"a study cannot {' '.join(asked.action)}; it can {known}.")
    if action != "launch" and (asked.one_job or asked.dry_run):
        raise InputError("--one-job and --dry-run say how a study is launched: study NAME launch.")
    if asked.one_job:
        return _one_job(found, asked)
    if action == "launch" and found.is_estimated and found.plan.full:
        raise InputError("full chooses among all runs of a study; launch it as --one-job.")
    if action in _VERBS:
        return _each(found, action, asked)
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


def _each(found: "Study", verb: str, asked: argparse.Namespace) -> int:
    """Do what a verb does with each run; the exit code is the largest."""
    codes = []
    for each in found.members:
        print(f"{each.run.name}:", flush=True)
        codes.append(int(asked.main([verb, *each.overrides, *["--dry-run"] * asked.dry_run])))
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


def _add_nightly(verbs: "argparse._SubParsersAction[Parser]") -> None:
    command = verbs.add_parser(
        "nightly",
        description="run a named sweep and compare it with its baseline",
        examples=["factsweep nightly demo", "factsweep nightly demo --date 2026-11-20"],
    )
    command.take(
        "nightly",
        keys=None,
        about="NIGHTLY is one of conf/nightly/, or a YAML file; overrides are for each of its "
        "runs. Exit codes: 0 no change or better, 3 regression, 4 not enough evidence.",
        run=_nightly,
    )
    command.option("--date", "the night; default today", type=date.fromisoformat)
    text = "POST the verdict there as JSON, or that the night failed; default $FACTSWEEP_NOTIFY_URL"
    command.option("--notify", text, metavar="URL")
    _add_baseline(verbs)


def _add_baseline(verbs: "argparse._SubParsersAction[Parser]") -> None:
    command = verbs.add_parser(
        "baseline",
        description="accept or show the run that a nightly is compared with",
        examples=["factsweep baseline accept demo demo-2026-11-20", "factsweep baseline show demo"],
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    text = "compare a nightly with this run from now on"
    accept = actions.add_parser("accept", help=text, description=text)
    accept.take(
        *("nightly", "accepted"),
        about="NIGHTLY is one of conf/nightly/, or a YAML file; ACCEPTED a night "
        "(demo-2026-11-21), or a run.",
        run=_accept,
    )
    text = "list the accepted runs, the last one first"
    show = actions.add_parser("show", help=text, description=text)
    show.take("nightly", about="NIGHTLY is one of conf/nightly/, or a YAML file.", run=_show)


def _nightly(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.studies import night as nights

    url = asked.notify or os.environ.get(nights.VARIABLE)
    if url:
        nights.check_address(url)
    day = asked.date or datetime.now().astimezone().date()
    try:
        found = nights.night(asked.nightly, asked.overrides, day)
    except (Exception, KeyboardInterrupt) as error:
        if url:
            nights.notify(url, f"{nights.label(asked.nightly)}-{day}", error)
        raise
    if url:
        nights.notify(url, found.name, found)
    for line in _lines(found, asked.nightly, _where(asked)):
        print(line)
    return found.exit_code


def _where(asked: argparse.Namespace) -> list[str]:
    """What was typed that says where results and the user's own configuration lie."""
    own = ["--config-dir", asked.config_dir] if asked.config_dir else []
    return [*(each for each in asked.overrides if each.startswith("results=")), *own]


def _lines(found: "Night", given: str, where: Sequence[str]) -> Iterator[str]:
    """The report of a night, as plain lines for a log; `where` says where things lie."""
    accept = shlex.join(["factsweep", "baseline", "accept", given, found.name, *where])
    if found.baseline is None:
        yield f"no baseline is accepted yet; if these results are to be it: {accept}"
    else:
        accepted = found.baseline
        yield f"compared with {accepted.run}, accepted by {accepted.accepted_by}"
        yield from (f"changed since: {line}" for line in found.changed)
        if not found.changed:
            yield "nothing has changed since: weights, engine, versions, commit, machine"
    for judged in found.settings:
        yield from _setting_lines(judged)
    where = f"{found.results}/{found.name}/verdict.json"
    yield f"{found.name}: {found.outcome} (exit code {found.exit_code}), {where}"


def _setting_lines(judged: "Judged") -> Iterator[str]:
    yield f"{judged.run}, {judged.setting}: {judged.outcome}: {judged.reason}"
    if judged.tables is None:
        return
    if judged.reused:
        yield "  the answers are the baseline's: nothing that they are made of has changed"
    if judged.flip_rate is not None:
        yield f"  noise floor: {judged.flip_rate:.4f} of the canary's answers differ"
    yield f"  {lost_and_gained(judged.lost, judged.n_gained)}"
    yield f"  tables: {judged.tables}/"


def _accept(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.results import baseline
    from factsweep.pipeline.studies import night

    night.load(asked.nightly)
    name = night.label(asked.nightly)
    found = baseline.accept(name, asked.accepted, places(asked)["results"])
    runs = ", ".join(found.runs)
    print(f"{name} is compared with {found.run} from now on ({runs}).")
    return 0


def _show(asked: argparse.Namespace) -> int:
    from factsweep.operators.errors import InputError
    from factsweep.pipeline.results import baseline
    from factsweep.pipeline.studies import night

    night.load(asked.nightly)
    name = night.label(asked.nightly)
    where = places(asked)["results"]
    found = baseline.history(name, where)
    if not found:
        words = ["baseline", "accept", asked.nightly, "RUN", *asked.overrides]
        fix = shlex.join(["factsweep", *words])
        raise InputError(
            f"{name} has no baseline; accept one with: {fix}. Runs are the folders in {where}."
        )
    for each in reversed(found):
        verdict = f", verdict {each.verdict}" if each.verdict else ""
        print(
            f"{each.accepted_at}  {each.run}  by {each.accepted_by}, "
            f"commit {(each.commit or 'unknown')[:12]}{verdict}"
        )
    return 0

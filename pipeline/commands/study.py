"""The verbs `study`, `nightly` and `baseline`: several runs as one piece of work."""

import argparse
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from factsweep.operators.errors import InputError
from factsweep.operators.wording import count, join_list
from factsweep.pipeline.commands.arguments import Parser, fit_to_terminal, places
from factsweep.pipeline.commands.compare import lost_and_gained
from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.urls import split_web_address

if TYPE_CHECKING:
    from factsweep.pipeline.studies.night import Night
    from factsweep.pipeline.studies.study import Study

# The verbs that a study passes on to each run.
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
    study.add_argument("--axis", help=axis)
    study.add_argument("--reference", help="the run that others are compared with; default: first")
    share = "a fact is known with more than this share of its prompts right; default: 0.5"
    study.add_argument("--known-share", help=share, type=float)
    full = "with a budget: so many runs are asked all prompts, and are the controls of the others"
    study.add_argument("--full", help=full, type=int, metavar="N")
    one_job = "with launch: all runs in one job, one after the other, in place of one job for each"
    study.flag("--one-job", one_job)
    study.flag("--dry-run", "with launch: print the jobs, and submit nothing")


def _study(args: argparse.Namespace) -> int:
    from factsweep.pipeline.studies.study import study

    options = {name: getattr(args, name) for name in _FIELDS}
    plan = study(args.study, args.overrides, **options)
    action = args.action[0] if args.action else "run"
    if len(args.action) > 1 or action not in (*_VERBS, _REPORT, "run"):
        actions = join_list(("run", *_VERBS, _REPORT))
        raise InputError(f"a study cannot {' '.join(args.action)}; it can {actions}.")
    if action != "launch" and (args.one_job or args.dry_run):
        raise InputError("--one-job and --dry-run say how a study is launched: study NAME launch.")
    if args.one_job:
        return _launch_one_job(plan, args)
    if action == "launch" and plan.is_estimated and plan.plan.full:
        raise InputError("full chooses among all runs of a study; launch it as --one-job.")
    if action not in _VERBS:
        return _measure_study(plan, ask=action == "run")
    codes = []
    for member in plan.members:
        print(f"{member.run.name}:", flush=True)
        words = [action, *member.overrides, *["--dry-run"] * args.dry_run]
        codes.append(int(args.main(words)))
    return max(codes)


def _launch_one_job(study: "Study", args: argparse.Namespace) -> int:
    from factsweep.pipeline.cluster import job_request
    from factsweep.pipeline.cluster.hardware import gpus_per_engine
    from factsweep.pipeline.commands.run import handed_over

    largest = max((member.run for member in study.members), key=gpus_per_engine)
    run = replace(largest, name=study.name)
    launch = run.cluster.launch
    if launch is None or launch.kind == "kuberay":
        raise InputError("--one-job is for cluster=slurm and cluster=ray; leave it out.")
    if launch.kind == "slurm" and launch.nodes is None:
        raise InputError(
            "--one-job needs the nodes that the job may have; give cluster.launch.nodes."
        )
    for member in study.members:
        job_request.check_no_credentials(member.run)
        job_request.gpus(member.run, member.overrides)
        if launch.kind == "slurm":
            job_request.nodes(member.run, launch.gpus_per_node)
    options = [
        f"--{name.replace('_', '-')}={value}"
        for name in _FIELDS
        if (value := getattr(args, name)) is not None
    ]
    overrides = [study.name, *args.overrides, *options]
    print(handed_over(run, overrides, "study", dry_run=args.dry_run))
    return 0


def _measure_study(study: "Study", *, ask: bool) -> int:
    from factsweep.operators.tables.formats import markdown
    from factsweep.pipeline.studies import study_report
    from factsweep.pipeline.studies.study import ask_members

    failures = ask_members(study) if ask else []
    n_missing = sum(not member.is_answered for member in study.members)
    if n_missing == len(study.members):
        no_results = InputError(f"no run of {study.name} has results yet.")
        raise failures[0].error if failures else no_results
    findings = study_report.write(study)
    for table in findings.tables:
        print(fit_to_terminal(f"\n{markdown(table)}"))
    print("\n".join(findings.lines))
    for failure in failures:
        logs.say(f"factsweep: {failure.label} failed: {failure.error}")
    runs = count(len(study.members) - n_missing, "run")
    print(f"{study.name}: {runs}, {n_missing:,} missing")
    return max((failure.error.exit_code for failure in failures), default=0)


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
    command.add_argument("--date", help="the night; default today", type=date.fromisoformat)
    text = "POST the verdict there as JSON, or that the night failed; default $FACTSWEEP_NOTIFY_URL"
    command.add_argument("--notify", help=text, metavar="URL")
    _add_baseline(verbs)


def _add_baseline(verbs: "argparse._SubParsersAction[Parser]") -> None:
    command = verbs.add_parser(
        "baseline",
        description="accept or show the run that a nightly is compared with",
        examples=["factsweep baseline accept demo-2026-11-20", "factsweep baseline show demo"],
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    text = "compare a nightly with this run from now on"
    accept = actions.add_parser("accept", help=text, description=text)
    accept.take(
        rest="accepted",
        about="ACCEPTED is a night, such as demo-2026-11-21; or a nightly (its name, or its YAML "
        "file) and the run that its nights are compared with.",
        run=_accept_baseline,
    )
    text = "list the accepted runs, the last one first"
    show = actions.add_parser("show", help=text, description=text)
    show.take("nightly", about="NIGHTLY is the name of a nightly, or its YAML file.", run=_show)


def _nightly(args: argparse.Namespace) -> int:
    from factsweep.pipeline.studies import night as nights

    url = args.notify or os.environ.get(nights.VARIABLE)
    if url:
        split_web_address(url, f"--notify or ${nights.VARIABLE}")
    day = args.date or datetime.now().astimezone().date()
    try:
        night = nights.night(args.nightly, args.overrides, day)
    except (Exception, KeyboardInterrupt) as error:
        if url:
            _notify_failure(url, args, nights.night_name(args.nightly, day), error)
        raise
    if url:
        nights.notify(url, night.name, night)
    own_dir = ["--config-dir", args.config_dir] if args.config_dir else []
    folders = [*(word for word in args.overrides if word.startswith("results=")), *own_dir]
    accept = shlex.join(["factsweep", "baseline", "accept", night.name, *folders])
    print("\n".join(_describe_night(night, accept)))
    return night.exit_code


def _notify_failure(url: str, args: argparse.Namespace, name: str, error: BaseException) -> None:
    """Notify of a night that failed, unless it is a nightly that has never been valid."""
    from factsweep.pipeline.machine.logs import LOG
    from factsweep.pipeline.studies import night as nights

    has_begun = True
    if getattr(error, "exit_code", None) == InputError.exit_code:
        try:
            label = nights.label(args.nightly)
            has_begun = nights.has_begun(label, places(args)["results"], besides=name)
        except InputError as fault:  # results= itself is wrong, or its store does not answer
            has_begun = fault.exit_code != InputError.exit_code
    if has_begun:
        nights.notify(url, name, error)
    else:
        LOG.warning("nothing was sent: %s has not been valid yet.", args.nightly)


def _describe_night(night: "Night", accept: str) -> Iterator[str]:
    """The report of a night, as plain lines for a log; `accept` makes it the baseline."""
    if night.baseline is None:
        yield f"no baseline is accepted yet; if these results are to be it: {accept}"
    else:
        yield f"compared with {night.baseline.run}, accepted by {night.baseline.accepted_by}"
        yield from (f"changed since: {line}" for line in night.changed)
        if not night.changed:
            yield "nothing has changed since: weights, engine, versions, commit, machine"
    for judged in night.settings:
        yield f"{judged.run}, {judged.setting}: {judged.outcome}: {judged.reason}"
        if judged.tables is None:
            continue
        if judged.reused:
            yield "  the answers are the baseline's: nothing that they are made of has changed"
        if judged.flip_rate is not None:
            yield f"  noise floor: {judged.flip_rate:.4f} of the canary's answers differ"
        yield f"  {lost_and_gained(judged.lost, judged.n_gained)}"
        yield f"  tables: {judged.tables}/"
    path = f"{night.results}/{night.name}/verdict.json"
    yield f"{night.name}: {night.outcome} (exit code {night.exit_code}), {path}"


def _accept_baseline(args: argparse.Namespace) -> int:
    from factsweep.pipeline.results import baseline
    from factsweep.pipeline.studies import night

    results, words = places(args)["results"], args.accepted
    parts = night.split_night(words[0]) if len(words) == 1 else None
    if parts is None and len(words) != 2:
        raise InputError(
            "baseline accept needs ACCEPTED: a night, such as demo-2026-11-21, or a nightly and a "
            "run; see factsweep baseline accept --help."
        )
    name = night.find_label(words[0], results) if parts is None else parts.nightly
    accepted = baseline.accept(name, words[-1], results)
    print(f"{name} is compared with {accepted.run} from now on ({', '.join(accepted.runs)}).")
    return 0


def _show(args: argparse.Namespace) -> int:
    from factsweep.pipeline.results import baseline
    from factsweep.pipeline.studies import night

    results = places(args)["results"]
    name = night.find_label(args.nightly, results)
    history = baseline.history(name, results)
    if not history:
        fix = shlex.join(["factsweep", "baseline", "accept", args.nightly, "RUN", *args.overrides])
        raise InputError(
            f"{name} has no baseline; accept one with: {fix}. Runs are the folders in {results}."
        )
    for accepted in reversed(history):
        verdict = f", verdict {accepted.verdict}" if accepted.verdict else ""
        print(
            f"{accepted.accepted_at}  {accepted.run}  by {accepted.accepted_by}, "
            f"commit {(accepted.commit or 'unknown')[:12]}{verdict}"
        )
    return 0

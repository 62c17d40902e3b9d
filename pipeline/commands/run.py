"""The verbs of a run: run, plan, status, verify, prompts, score, launch and doctor."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from factsweep.operators.errors import InputError, NotAtHandError, StoppedError, printable
from factsweep.operators.wording import count
from factsweep.pipeline.commands.arguments import (
    ENCODED,
    Parser,
    fit_to_terminal,
    other_overrides,
    places,
)
from factsweep.pipeline.machine import logs

if TYPE_CHECKING:
    from factsweep.pipeline.cluster.machine_checks import Finding
    from factsweep.pipeline.config.run import Run

_OF_PAST = ("plan", "status", "verify")  # which take the name of a run, too
_VERIFY = "read every byte of a run, or of a whole store: is it what was written"
_SCORE = "measure answers of another system: answers=<JSONL or Parquet with prompt_id and text>"
_EXAMPLES = {
    "run": [
        "factsweep run sweep=demo",
        "factsweep run sweep=estimate budget=1%",
        "factsweep run sweep=estimate target='acc_at_1±0.003' control=RUN",
        "factsweep run model=Qwen/Qwen3-8B-Base seed=1",
    ],
    "plan": ["factsweep plan model=gpt2 sweep=paper benchmark=myriadlama"],
    "status": ["factsweep status demo", "factsweep status sweep=demo --watch"],
    "verify": ["factsweep verify demo", "factsweep verify --all artifacts=/srv/artifacts"],
    "prompts": ["factsweep prompts prompt=4-template --out prompts.jsonl"],
    "score": [
        "factsweep score answers=mine.jsonl prompt=4-template run_name=mine",
        "factsweep score answers=mine.jsonl prompt=4-template sweep=estimate budget=5%",
    ],
}


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verbs to the command line."""
    _add_doctor(verbs)
    _add_launch(verbs)
    commands = {}
    for verb, run, text in (
        ("run", execute, "compute what is missing and write the tables"),
        ("plan", _plan, "say what a run would compute, and what is complete already"),
        ("status", _status, "say whether each stage of a run is done, partial or missing"),
        ("verify", _verify, _VERIFY),
        ("prompts", _prompts, "write the prompts of a setting to a file, for any system to answer"),
        ("score", _score, _SCORE),
    ):
        command = verbs.add_parser(verb, description=text, examples=_EXAMPLES[verb])
        past = "RUN is one that has begun: what it asks." if verb in _OF_PAST else ""
        command.take(rest="past" if verb in _OF_PAST else None, keys=None, about=past, run=run)
        commands[verb] = command
    commands["run"].flag("--percent-encoded", ENCODED)
    attempts = "start so many times again, a minute later, where the store does not answer"
    commands["run"].add_argument("--attempts", help=attempts, type=int, default=0, metavar="N")
    fix = "set aside what is damaged, so that the next run computes it anew"
    commands["verify"].flag("--repair", fix)
    commands["verify"].flag("--all", "check all that artifacts= holds, in place of one run")
    file = "a .jsonl or .parquet file; default prompts.jsonl"
    commands["prompts"].add_argument("--out", type=Path, default=Path("prompts.jsonl"), help=file)
    batch = "write requests of OpenAI's batch API, whose output score takes"
    commands["prompts"].flag("--batch", batch)
    live = "show how the run gets on until it ends: rates, engines, shards, errors"
    commands["status"].flag("--watch", live)
    minute = "decode its prompts for a minute first and keep the rate; publishes no answer"
    commands["plan"].flag("--calibrate", minute)


def execute(args: argparse.Namespace) -> int:
    """Compute the missing artifacts and print the card."""
    settings = _load_run(args.overrides)
    from factsweep.pipeline.runs.run import check_asks, run

    if settings.budget is not None:
        check_asks(settings)
        return _print_estimate(settings)
    run(settings)
    return print_card(settings.folder)


def _load_run(overrides: Sequence[str]) -> "Run":
    """The run of the overrides; prints how a table of the user's own is measured."""
    from factsweep.pipeline.config.settings import load

    run = load(overrides)
    if run.table is not None:
        logs.say(f"{run.table}.")
    return run


def print_card(folder: str) -> int:
    """Print the card of a run, by the folder of its results; returns the exit code."""
    from factsweep.pipeline.results.results import load

    print(fit_to_terminal(f"\n{load(folder)}"))
    return 0


def _print_estimate(settings: "Run") -> int:
    from factsweep.operators.tables.estimates import format_report
    from factsweep.pipeline.runs.estimate import estimate

    print(fit_to_terminal(f"\n{format_report(estimate(settings))}"))
    return 0


def _prompts(args: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.prompts import write

    n = write(_load_run(args.overrides), args.out, batch=args.batch)
    print(f"{args.out}: {count(n, 'prompt')}")
    return 0


def _score(args: argparse.Namespace) -> int:
    settings = _load_run(args.overrides)
    if settings.budget is not None:
        return _print_estimate(settings)
    from factsweep.pipeline.runs.run import score

    score(settings)
    return print_card(settings.folder)


def _find_run(args: argparse.Namespace) -> "Run":
    """The run of the overrides, or one that has begun by its name or by run_name= alone."""
    runs = _find_runs(args)
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs)
        raise InputError(f"{args.past[0]} is of several runs; {args.verb} one of {names}.")
    return runs[0]


def _find_runs(args: argparse.Namespace) -> list["Run"]:
    """As `_find_run`; a night or a study stands for all of its runs."""
    from factsweep.pipeline.config.literal_overrides import unquote
    from factsweep.pipeline.config.settings import load
    from factsweep.pipeline.results.past_runs import has_begun, list_parts, run_of

    names, overrides = args.past, other_overrides(args)
    if not names:
        key, _, value = overrides[0].partition("=") if len(overrides) == 1 else ("", "", "")
        names = [unquote(value)]
        if key != "run_name" or not has_begun(places(args)["results"], names[0]):
            return [load(args.overrides)]
        overrides = []
    if len(names) > 1 or overrides:
        words = " ".join(map(printable, [*names, *overrides]))
        raise InputError(
            f"{args.verb} {words}: the name of a run stands for all its settings; give one name, "
            "or overrides alone."
        )
    folders = places(args)
    name = names[0].rstrip("/")
    runs = [run_of(folders["results"], n) for n in list_parts(folders["results"], name)]
    has_store = any(override.startswith("artifacts=") for override in args.overrides)
    return [replace(run, artifacts=folders["artifacts"]) for run in runs] if has_store else runs


def _plan(args: argparse.Namespace) -> int:
    from factsweep.pipeline.commands import api

    if args.calibrate:
        from factsweep.pipeline.runs.calibration import calibrate

        for line in calibrate(_find_run(args)):
            print(line)
    try:
        planned = api.forecast_of(_find_run(args))
    except NotAtHandError:
        if all(word.startswith("run_name=") for word in other_overrides(args)):
            raise  # of a past run, whose settings are its record's
        planned = api.plan_absent(args.overrides)
    print(fit_to_terminal(str(planned)))
    return 0


def _status(args: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.status import status

    if args.watch:
        return _watch(_find_run(args))
    for run in _find_runs(args):
        for line in status(run):
            print(line)
    return 0


def _watch(settings: "Run") -> int:
    from factsweep.pipeline.runs.status import watch

    try:
        with logs.Meter(settings.name) as meter:
            return watch(settings, meter)
    except KeyboardInterrupt:  # ends watching, not the run
        return StoppedError.exit_code


def _verify(args: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.verify import verify, verify_store

    if args.all:
        report = verify_store(places(args)["artifacts"], repair=args.repair)
    else:
        report = verify(_find_run(args), repair=args.repair)
    for problem in report.problems:
        logs.say(problem)
    print(f"{count(report.shards, 'shard')} read, {count(len(report.problems), 'problem')}")
    return 2 if report.problems else 0


def _add_launch(verbs: "argparse._SubParsersAction[Parser]") -> None:
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
    doctor = "run `factsweep doctor` there in place of the sweep: what every node lacks"
    launch.flag("--doctor", doctor)
    load = "with --doctor: start the engine there, ask 200 of its prompts, and ask them again"
    launch.flag("--load", load)
    launch.set_defaults(json=False, report=None)


def _launch(args: argparse.Namespace) -> int:
    from factsweep.pipeline.cluster import job_request
    from factsweep.pipeline.config.settings import load

    if args.load and not args.doctor:
        raise InputError("--load is a look of the doctor's: launch --doctor --load.")
    settings = load(args.overrides)
    verb = "doctor" if args.doctor else "run"
    if settings.cluster.launch is None:
        if not args.dry_run:
            return examine(args) if args.doctor else execute(args)
        print(job_request.command(args.overrides, verb))
        return 0
    job_request.check_no_credentials(settings)
    overrides = [
        *job_request.resolve_overrides(settings, args.overrides),
        *(["--load"] * args.load),
    ]
    print(handed_over(settings, overrides, verb, dry_run=args.dry_run))
    return 0


def handed_over(settings: "Run", overrides: Sequence[str], verb: str, *, dry_run: bool) -> str:
    """Submit a verb to the cluster of a run; returns the next step, or with `dry_run` the job."""
    from factsweep.pipeline.cluster import job_request
    from factsweep.pipeline.cluster.hardware import check_build
    from factsweep.pipeline.cluster.launchers import LAUNCHERS
    from factsweep.pipeline.machine import secrets

    launch = settings.cluster.launch
    assert launch is not None
    launcher = LAUNCHERS[launch.kind]
    if launch.kind == "slurm" and not dry_run:  # the nodes have this very installation
        check_build(settings)
    text = launcher.rendered(settings, overrides, verb)
    # The job may encode the overrides, which hides a secret.
    secrets.refuse(f"{job_request.command(overrides, verb)}\n{text}", "what would be submitted")
    return text.rstrip("\n") if dry_run else str(launcher.submitted(launch, text))


def _add_doctor(verbs: "argparse._SubParsersAction[Parser]") -> None:
    doctor = verbs.add_parser(
        "doctor",
        description="look at all that a run needs, before it costs anything",
        examples=[
            "factsweep doctor",
            "factsweep doctor model=llama3-70b artifacts=s3://bucket/sweeps",
            "factsweep doctor model=llama3-70b --load model.engine.load_format=dummy",
            "factsweep doctor cluster=ray cluster.address=auto --report doctor.txt",
        ],
    )
    doctor.take(
        keys=None,
        about="The overrides are those of the run. With cluster.address, every node of that Ray "
        "is looked at too. Exit code 1 where something fails.",
        run=examine,
    )
    engine = "start the engine as the sweep would, ask 200 of its prompts, and ask them again"
    doctor.flag("--load", engine)
    doctor.flag("--json", "print the findings as JSON")
    report = "write them there too, to attach to an issue: no secrets"
    doctor.add_argument("--report", help=report, metavar="FILE")
    doctor.flag("--percent-encoded", ENCODED)


def examine(args: argparse.Namespace) -> int:
    """Print the findings one by one; exit code 1 if a check fails."""
    from factsweep.pipeline.config.settings import load
    from factsweep.pipeline.doctor.examination import examine
    from factsweep.pipeline.machine.software import versions

    findings: list[Finding] = []
    lines = list[str]()
    for finding in examine(load(args.overrides), load_engine=args.load):
        is_first = not findings or findings[-1].group != finding.group
        block = [finding.group, str(finding)] if is_first else [str(finding)]
        findings.append(finding)
        lines += block
        if not args.json:
            print("\n".join(block), flush=True)
    states = Counter(finding.state for finding in findings)
    lines.append(f"{len(findings)} checks: {states['fails']} fail, {states['warns']} warn")
    print(json.dumps(list(map(asdict, findings)), indent=1) if args.json else lines[-1])
    if args.report:
        software = versions("factsweep", "ray", "torch", "transformers", "polars", "pyarrow")
        first = ", ".join(f"{name} {version}" for name, version in software.items())
        Path(args.report).write_text("\n".join([first, *lines, ""]), "utf-8")
    return 1 if states["fails"] else 0

"""The verbs of a run: run, plan, status, verify, prompts, score, launch and doctor."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from factsweep.operators.errors import InputError, StoppedError, printable
from factsweep.operators.wording import count
from factsweep.pipeline.commands.arguments import ENCODED, Parser, others, places, shown

if TYPE_CHECKING:
    from factsweep.pipeline.cluster.machine import Finding
    from factsweep.pipeline.config.run import Run

_OF_PAST = ("plan", "status", "verify")  # which take the name of a run, too
_WRITTEN = "read every byte of a run, or of a whole store: is it what was written"
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
        ("verify", _verify, _WRITTEN),
        ("prompts", _prompts, "write the prompts of a setting to a file, for any system to answer"),
        ("score", _score, _SCORE),
    ):
        command = verbs.add_parser(verb, description=text, examples=_EXAMPLES[verb])
        past = "RUN is one that is done: what was asked then." if verb in _OF_PAST else ""
        command.take(rest="past" if verb in _OF_PAST else None, keys=None, about=past, run=run)
        commands[verb] = command
    commands["run"].flag("--percent-encoded", ENCODED)
    attempts = "start so many times again, a minute later, where the store does not answer"
    commands["run"].option("--attempts", attempts, type=int, default=0, metavar="N")
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


def execute(asked: argparse.Namespace) -> int:
    """Compute what is missing and print the card."""
    settings = _loaded(asked.overrides)
    from factsweep.pipeline.runs.run import check_asks, run

    if settings.budget is not None:
        check_asks(settings)
        return _estimate(settings)
    run(settings)
    return _print_card(settings)


def _loaded(overrides: Sequence[str]) -> "Run":
    """The run that the overrides describe; how a table of the user's own is measured is printed."""
    from factsweep.pipeline.config.settings import load

    run = load(overrides)
    if run.table is not None:
        print(f"{run.table}.", file=sys.stderr)
    return run


def _print_card(settings: "Run") -> int:
    from factsweep.pipeline.results.results import load

    print(shown(f"\n{load(settings.folder)}"))
    return 0


def _estimate(settings: "Run") -> int:
    from factsweep.operators.tables.estimates import written
    from factsweep.pipeline.runs.estimate import estimate

    found = estimate(settings)
    print(shown(f"\n{written(found)}"))
    return 0


def _prompts(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.prompts import write

    n = write(_loaded(asked.overrides), asked.out, batch=asked.batch)
    print(f"{asked.out}: {count(n, 'prompt')}")
    return 0


def _score(asked: argparse.Namespace) -> int:
    settings = _loaded(asked.overrides)
    if settings.budget is not None:
        return _estimate(settings)
    from factsweep.pipeline.runs.run import score

    score(settings)
    return _print_card(settings)


def _settings(asked: argparse.Namespace) -> "Run":
    """The run that is described, or one that is done, by its name."""
    from factsweep.pipeline.config.settings import load
    from factsweep.pipeline.results.past import run_of

    named = asked.past or _only_name(asked)
    if not named:
        return load(asked.overrides)
    beside = [each for each in others(asked) if asked.past]
    if len(named) > 1 or beside:
        told = " ".join(map(printable, [*named, *beside]))
        raise InputError(
            f"{asked.verb} {told}: the name of a run stands for all that was asked then; give one "
            "name, or overrides alone."
        )
    where = places(asked)
    run = run_of(where["results"], named[0])
    given = any(each.startswith("artifacts=") for each in asked.overrides)
    return replace(run, artifacts=where["artifacts"]) if given else run


def _only_name(asked: argparse.Namespace) -> list[str]:
    """The run_name of one that is done, if nothing else was given: it asked what it asked then."""
    from factsweep.pipeline.config.literal import unquote
    from factsweep.pipeline.results.past import is_done

    names = (word.partition("=")[2] for word in others(asked) if word.startswith("run_name="))
    named = [*map(unquote, names)]
    alone = len(others(asked)) == len(named) == 1
    return named if alone and is_done(places(asked)["results"], named[0]) else []


def _plan(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.commands import api

    settings = _settings(asked)
    if asked.calibrate:
        from factsweep.pipeline.runs.calibration import calibrate

        for line in calibrate(settings):
            print(line)
    print(shown(str(api.forecast_of(settings))))
    return 0


def _status(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.status import status

    settings = _settings(asked)
    if asked.watch:
        return _watch(settings)
    for line in status(settings):
        print(line)
    return 0


def _watch(settings: "Run") -> int:
    from factsweep.pipeline.machine.logs import Meter
    from factsweep.pipeline.runs.status import watch

    try:
        with Meter(settings.name, settings.log) as meter:
            return watch(settings, meter)
    except KeyboardInterrupt:  # the way to end it; the run goes on
        return StoppedError.exit_code


def _verify(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.verify import verify, verify_store

    if asked.all:
        found = verify_store(places(asked)["artifacts"], repair=asked.repair)
    else:
        found = verify(_settings(asked), repair=asked.repair)
    for problem in found.problems:
        print(problem, file=sys.stderr)
    print(f"{count(found.shards, 'shard')} read, {count(len(found.problems), 'problem')}")
    return 2 if found.problems else 0


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
    look = "run `factsweep doctor` there in place of the sweep: what every node lacks"
    launch.flag("--doctor", look)
    engine = "with --doctor: start the engine there, ask 200 of its prompts, and ask them again"
    launch.flag("--load", engine)
    launch.set_defaults(json=False, report=None)


def _launch(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.cluster import order
    from factsweep.pipeline.config.settings import load

    if asked.load and not asked.doctor:
        raise InputError("--load is a look of the doctor's: launch --doctor --load.")
    settings = load(asked.overrides)
    verb = "doctor" if asked.doctor else "run"
    if settings.cluster.launch is None:
        if not asked.dry_run:
            return examine(asked) if asked.doctor else execute(asked)
        print(order.command(asked.overrides, verb))
        return 0
    order.check_no_credentials(settings)
    overrides = [*order.resolve_overrides(settings, asked.overrides), *(["--load"] * asked.load)]
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
    doctor.option("--report", report, metavar="FILE")
    doctor.flag("--percent-encoded", ENCODED)


def examine(asked: argparse.Namespace) -> int:
    """Print what was found, as it is found; exit code 1 where something fails."""
    from factsweep.pipeline.config.settings import load
    from factsweep.pipeline.doctor.examination import examine

    found: list[Finding] = []
    lines = list[str]()
    for each in examine(load(asked.overrides), load_engine=asked.load):
        new = _lines(each, found[-1:])
        found.append(each)
        lines += new
        if not asked.json:
            print("\n".join(new), flush=True)
    fails = sum(each.state == "fails" for each in found)
    warns = sum(each.state == "warns" for each in found)
    lines.append(f"{len(found)} checks: {fails} fail, {warns} warn")
    print(json.dumps([asdict(each) for each in found], indent=1) if asked.json else lines[-1])
    if asked.report:
        Path(asked.report).write_text("\n".join([*_versions(), *lines, ""]), "utf-8")
    return 1 if fails else 0


def _lines(finding: "Finding", before: "Sequence[Finding]") -> list[str]:
    """A finding, under its group where that is another than before."""
    same = any(each.group == finding.group for each in before)
    return [str(finding)] if same else [finding.group, str(finding)]


def _versions() -> Iterator[str]:
    from factsweep.pipeline.machine.software import versions

    names = ("factsweep", "ray", "torch", "transformers", "polars", "pyarrow")
    yield ", ".join(f"{name} {version}" for name, version in versions(*names).items())

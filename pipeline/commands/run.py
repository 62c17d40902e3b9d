"""The verbs that take a configuration: run, plan, status, verify, score."""

import argparse
import sys
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from pipeline.config.settings import Run


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verbs to the command line."""
    score = "measure answers made elsewhere: answers=<JSONL or Parquet with prompt_id and text>"
    for verb, run, text in (
        ("run", execute, "compute what is missing and write the tables"),
        ("plan", _plan, "say what a run would compute, and what of it is there"),
        ("status", _status, "say how far each stage of a run is"),
        ("verify", _verify, "read every shard of a run: whole, complete, nothing twice"),
        ("score", _score, score),
    ):
        command = verbs.add_parser(verb, help=text, description=text)
        command.add_argument("overrides", nargs="*", help="Hydra overrides: model=llama3-8b seed=1")
        command.set_defaults(run=run)
        if verb == "verify":
            mend = "set damaged shards aside: the next run makes them anew"
            command.add_argument("--mend", action="store_true", help=mend)
        if verb == "plan":
            minute = "decode a minute of its prompts first, and keep the rate; publishes no answer"
            command.add_argument("--calibrate", action="store_true", help=minute)


def execute(asked: argparse.Namespace) -> int:
    """Compute what is missing and print the summary; the verb `run`."""
    from pipeline.config.settings import load
    from pipeline.execution.plan import settled
    from pipeline.run import run

    settings = settled(load(asked.overrides))
    _print_card(run(settings), settings)
    return 0


def _score(asked: argparse.Namespace) -> int:
    from pipeline.config.settings import load
    from pipeline.score import score

    settings = load(asked.overrides)
    _print_card(score(settings), settings)
    return 0


def _print_card(metrics: pl.DataFrame, settings: "Run") -> None:
    from operators.tables.formats.markdown import markdown
    from pipeline.storage.store import Store

    model = settings.model
    computed = "" if settings.answers else f" in {model.dtype}"
    print(f"\n{model.name} on {settings.benchmark.name}{computed}{_part(settings)}\n")
    print(markdown(settings.method.card(metrics)))
    if model.trust_remote_code:
        print(f"model.trust_remote_code=true: code of {model.id} was allowed to run")
    folder = Store(settings.results).where(settings.name)
    print(f"page: {folder}/index.html; tables, figures and every number by relation: {folder}/")


def _part(settings: "Run") -> str:
    """Say so, if only a part of the benchmark was measured."""
    from dataclasses import asdict

    from pipeline.stages.facts import part

    limits = {name: value for name, value in asdict(part(settings.benchmark)).items() if value}
    limits["relations"] = len(settings.benchmark.relations or ()) or None
    chosen = [f"{value} {name.replace('_', ' ')}" for name, value in limits.items() if value]
    return f", a slice: {', '.join(chosen)}" if chosen else ""


def _plan(asked: argparse.Namespace) -> int:
    from pipeline.config.settings import load
    from pipeline.costs.forecast import forecast, lines

    settings = load(asked.overrides)
    if asked.calibrate:
        from pipeline.costs.calibration import calibrate

        for line in calibrate(settings):
            print(line)
    for line in lines(*forecast(settings)):
        print(line)
    return 0


def _status(asked: argparse.Namespace) -> int:
    from pipeline.config.settings import load
    from pipeline.execution.status import status

    for line in status(load(asked.overrides)):
        print(line)
    return 0


def _verify(asked: argparse.Namespace) -> int:
    from pipeline.config.settings import load
    from pipeline.execution.status import verify

    checked, problems = verify(load(asked.overrides), mend=asked.mend)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{checked} shards read, {len(problems)} problems")
    return 1 if problems else 0

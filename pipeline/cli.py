"""The command `factsweep`: a verb, then Hydra overrides."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from operators.errors import FactsweepError
from pipeline.builders import command as build

if TYPE_CHECKING:
    from pipeline.settings import Run

_OVERRIDES = {
    "run": "compute what is missing and write the tables",
    "plan": "say what a run would compute, and what of it is there",
    "status": "say how far each stage of a run is",
    "verify": "read every shard of a run: whole, complete, nothing twice",
    "score": "measure answers made elsewhere: answers=<JSONL or Parquet with prompt_id and text>",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 failed, 2 bad input."""
    asked = _parsed(arguments)
    logging.basicConfig(format="factsweep: %(message)s", level=logging.WARNING)
    try:
        return int(_COMMANDS[asked.verb](asked))
    except FactsweepError as error:
        print(f"factsweep: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("factsweep: stopped; the next run goes on from what is published.", file=sys.stderr)
        return 130


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; argparse takes no overrides behind an option, so they are added here."""
    parser = _parser()
    asked, late = parser.parse_known_args(arguments)
    if late and ("overrides" not in asked or any(each.startswith("-") for each in late)):
        parser.error(f"unknown arguments: {' '.join(late)}")
    if late:
        asked.overrides += late
    return asked


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="factsweep",
        description="Facts × templates × a model → answers → tables.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad input.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    for verb, text in _OVERRIDES.items():
        command = verbs.add_parser(verb, help=text, description=text)
        command.add_argument("overrides", nargs="*", help="Hydra overrides: model=llama3-8b seed=1")
        if verb == "verify":
            mend = "set damaged shards aside: the next run makes them anew"
            command.add_argument("--mend", action="store_true", help=mend)
    why = verbs.add_parser("why", help="name the fields in which two artifacts differ")
    why.add_argument("artifacts", nargs=2, help="a fingerprint, or the start of one")
    why.add_argument("--store", default="artifacts", help="where the artifacts lie")
    catalog = verbs.add_parser("catalog", help="list, fetch or verify the data sets")
    catalog.add_argument("action", choices=("list", "fetch", "verify"))
    catalog.add_argument("name", nargs="?", help="an entry of data_catalog/")
    catalog.add_argument("--path", help="a local copy of the data: a folder or a file")
    compare = verbs.add_parser("compare", help="compare two past runs, fact by fact")
    compare.add_argument("first", help="the name of a run")
    compare.add_argument("second", help="the name of another")
    compare.add_argument(
        "settings", nargs="*", help="of conf/comparison/: smallest_difference=0.05"
    )
    compare.add_argument("--results", default="results", help="where the results of runs lie")
    compare.add_argument("--out", help="where to write; results/compare/<first>-<second>")
    differ = "even if they differ in more than the model; the tables say so"
    compare.add_argument("--anyway", action="store_true", help=differ)
    gate = "exit with 3 after a regression, with 4 where the evidence is not enough"
    compare.add_argument("--gate", action="store_true", help=gate)
    report = verbs.add_parser("report", help="put the tables and figures of past runs together")
    report.add_argument("runs", nargs="*", help="names of runs; none: all that there are")
    report.add_argument("--results", default="results", help="where the results of runs lie")
    report.add_argument("--out", help="where to write; results/report")
    build.add(verbs)
    describe = verbs.add_parser("describe", help="count a data set and measure its diversity")
    describe.add_argument("name", help="an entry of data_catalog/, or a folder or file")
    describe.add_argument("--path", help="a local copy of the data: a folder or a file")
    describe.add_argument("--parser", help="a spaCy pipeline: measures syntax")
    describe.add_argument("--encoder", help="a sentence encoder, folder or id: measures semantics")
    describe.add_argument("--out", help="a folder: the tables as Markdown, CSV and LaTeX")
    return parser


def _compare(asked: argparse.Namespace) -> int:
    from operators.tables.markdown import markdown
    from pipeline.comparing import compared, settings
    from pipeline.store import Store
    from pipeline.writing import write_report

    given = settings(dict(map(_assigned, asked.settings)))
    out = asked.out or f"{asked.results}/compare/{asked.first}-{asked.second}"
    outcomes = set()
    for found in compared(asked.first, asked.second, asked.results, given, anyway=asked.anyway):
        folder = f"{out}/{found.benchmark}-{found.setting.replace(' ', '-')}"
        write_report(Store(folder), found.report)
        print(
            f"\n{found.names[1]} against {found.names[0]}: {found.setting} on {found.benchmark}\n"
        )
        for line in found.departures:
            print(f"differs in more than the model: {line}")
        print(markdown(found.report.tables["headline"]))
        print(markdown(found.report.tables["moves"]))
        print(f"{found.verdict.outcome}: {found.verdict.reason}")
        print(f"tables, facts gained and lost, figure: {folder}/")
        outcomes.add(found.verdict.outcome)
    if not asked.gate or outcomes <= {"no change", "improvement"}:
        return 0
    return 3 if "regression" in outcomes else 4


def _assigned(text: str) -> tuple[str, object]:
    """`alpha=0.01` as a name and a value."""
    import yaml

    name, _, value = text.partition("=")
    return name, yaml.safe_load(value)


def _report(asked: argparse.Namespace) -> int:
    from pipeline.stages.report import write_past

    for line in write_past(asked.runs, asked.results, asked.out or f"{asked.results}/report"):
        print(line)
    return 0


def _build(asked: argparse.Namespace) -> int:
    for line in build.lines(asked):
        print(line)
    return 0


def _describe(asked: argparse.Namespace) -> int:
    from pipeline.describe import describe

    options = {"parser": asked.parser, "encoder": asked.encoder, "out": asked.out}
    for line in describe(asked.name, asked.path, **options):
        print(line)
    return 0


def _run(asked: argparse.Namespace) -> int:
    from pipeline.run import run
    from pipeline.settings import load

    settings = load(asked.overrides)
    _print_card(run(settings), settings)
    return 0


def _score(asked: argparse.Namespace) -> int:
    from pipeline.score import score
    from pipeline.settings import load

    settings = load(asked.overrides)
    _print_card(score(settings), settings)
    return 0


def _print_card(metrics: pl.DataFrame, settings: "Run") -> None:
    from operators.tables.markdown import markdown

    print(f"\n{settings.model.name} on {settings.benchmark.name}{_part(settings)}\n")
    print(markdown(settings.method.card(metrics)))
    print(f"tables, figures and every number by relation: {settings.results}/{settings.name}/")


def _part(settings: "Run") -> str:
    """Say so, if only a part of the benchmark was measured."""
    from dataclasses import asdict

    from pipeline.stages.facts import part

    limits = {name: value for name, value in asdict(part(settings.benchmark)).items() if value}
    limits["relations"] = len(settings.benchmark.relations or ()) or None
    chosen = [f"{value} {name.replace('_', ' ')}" for name, value in limits.items() if value]
    return f", a slice: {', '.join(chosen)}" if chosen else ""


def _plan(asked: argparse.Namespace) -> int:
    from pipeline.forecast import forecast, lines
    from pipeline.settings import load

    for line in lines(*forecast(load(asked.overrides))):
        print(line)
    return 0


def _status(asked: argparse.Namespace) -> int:
    from pipeline.inspection import status
    from pipeline.settings import load

    for line in status(load(asked.overrides)):
        print(line)
    return 0


def _verify(asked: argparse.Namespace) -> int:
    from pipeline.inspection import verify
    from pipeline.settings import load

    checked, problems = verify(load(asked.overrides), mend=asked.mend)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{checked} shards read, {len(problems)} problems")
    return 1 if problems else 0


def _why(asked: argparse.Namespace) -> int:
    from pipeline.artifact import differences, find
    from pipeline.store import Store

    store = Store(asked.store)
    (left, a), (right, b) = (find(store, prefix) for prefix in asked.artifacts)
    found = list(differences(a, b))
    print(f"{left} → {right}")
    print("\n".join(f"  {line}" for line in found) if found else "  the same recipe")
    return 0


def _catalog(asked: argparse.Namespace) -> int:
    from operators.errors import InputError
    from pipeline import catalog

    if asked.action == "list":
        for name in catalog.names():
            print(f"{name:20} {catalog.entry(name).description}")
        return 0
    if asked.name is None:
        raise InputError(f"catalog {asked.action} needs a name: {', '.join(catalog.names())}.")
    entry = catalog.entry(asked.name)
    if asked.action == "fetch":
        print(f"{entry.name}: fetched at commit {catalog.fetch(entry)}")
        return 0
    problems = list(catalog.differences(entry, asked.path))
    print("\n".join(problems) if problems else f"{entry.name}: as the catalog says")
    return 1 if problems else 0


_COMMANDS = {
    "run": _run,
    "plan": _plan,
    "status": _status,
    "verify": _verify,
    "score": _score,
    "why": _why,
    "catalog": _catalog,
    "build": _build,
    "describe": _describe,
    "report": _report,
    "compare": _compare,
}

if __name__ == "__main__":
    sys.exit(main())

"""The verbs `compare`, `report` and `export`: past runs, read again."""

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from factsweep.pipeline.commands.arguments import PLACES, Parser, others, places, shown

if TYPE_CHECKING:
    from factsweep.pipeline.results.compare import Compared

_N_NAMED = 10


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verbs to the command line."""
    _add_report(verbs)
    compare = verbs.add_parser(
        "compare",
        description="compare two past runs or settings, fact by fact",
        examples=[
            "factsweep compare A B",
            "factsweep compare A:zero-shot A:4-template",
            "factsweep compare A B smallest_difference=0.05 --gate",
        ],
    )
    compare.take(
        *("first", "second"),
        keys=_keys,
        group="comparison.",
        about="FIRST and SECOND are runs, or settings of runs, as demo:4-template.",
        run=_compare,
    )
    compare.option("--out", "where to write; default results/compare/<first>/to/<second>")
    paired = "pair prompts or facts; default: prompts, as far as both have any"
    compare.option("--by", paired, choices=["prompt", "fact"])
    differ = "compare even if they differ in more than model, setting and seed; tables are marked"
    compare.flag("--anyway", differ)
    fails = "exit with 3 after a regression, with 4 where the evidence is not enough"
    compare.flag("--gate", fails)


def _compare(asked: argparse.Namespace) -> int:
    from factsweep.operators.wording import names
    from factsweep.pipeline.config.folders import below
    from factsweep.pipeline.results.compare import compared, settings

    runs = asked.first, asked.second
    for name in runs:
        names.check_run(name.partition(":")[0])
    given = settings(dict(map(_assigned, others(asked))))
    results = places(asked)["results"]
    out = asked.out or below(results, f"compare/{names.comparison_folder(*map(_folder, runs))}")
    found = compared(*runs, results, given, anyway=asked.anyway, unit=asked.by)
    outcomes = _written(found, out)
    if not asked.gate or outcomes <= {"no change", "improvement"}:
        return 0
    return 3 if "regression" in outcomes else 4


def _written(comparisons: "Iterable[Compared]", out: str) -> set[str]:
    """Write and print comparisons as they are made; their outcomes."""
    from factsweep.operators.tables.formats import markdown
    from factsweep.pipeline.storage.store import Store
    from factsweep.pipeline.storage.tables import drop_reports, write_report

    outcomes: set[str] = set()
    folders = []
    for found in comparisons:
        pair = found.pair
        folders.append(_folder(f"{pair.first.benchmark}-{pair.title}"))
        store = Store(f"{out}/{folders[-1]}")
        write_report(store, found.report)
        one, other = pair.names
        print("\n" * bool(outcomes), end="")
        print(f"{other} against {one} on {pair.first.benchmark}: {found.paired}\n")
        for line in pair.asked:
            print(f"asked differently: {line}")
        for line in pair.departures:
            print(f"(!) differs in more than model, setting and seed: {line}")
        for name in ("headline", "moves"):
            print(shown(markdown(found.report.tables[name])))
        print(f"{found.verdict.outcome}: {found.verdict.reason}")
        print(lost_and_gained(found.lost, found.n_gained))
        print(f"tables, facts gained and lost, figure, raw numbers: {store.where()}/")
        outcomes.add(found.verdict.outcome)
    drop_reports(Store(out), besides=folders)
    return outcomes


def _folder(name: str) -> str:
    """A run or a setting as the name of a folder: `demo:4-template scope=prompt`."""
    return name.replace(":", "-").replace(" ", "-")


def _keys() -> list[str]:
    """What decides a comparison (conf/comparison/), and where things lie."""
    from dataclasses import fields

    from factsweep.pipeline.results.compare import Comparison

    return [*(each.name for each in fields(Comparison)), *PLACES]


def lost_and_gained(lost: Sequence[str], n_gained: int) -> str:
    """How many facts were lost and gained, and the first of the lost by name.

    >>> lost_and_gained(["Peru (P36 capital)"], 2)
    'facts: 1 lost, 2 gained; lost: Peru (P36 capital)'
    """
    more = f" and {len(lost) - _N_NAMED} more" if len(lost) > _N_NAMED else ""
    named = f"; lost: {', '.join(lost[:_N_NAMED])}{more}" if lost else ""
    return f"facts: {len(lost)} lost, {n_gained} gained{named}"


def _assigned(text: str) -> tuple[str, object]:
    """`alpha=0.01` as a name and a value."""
    import yaml

    from factsweep.operators.errors import input_errors

    name, _, value = text.partition("=")
    with input_errors(text, "write it as in YAML: 0.05, [acc_at_1]"):
        return name, yaml.safe_load(value)


_FORMATS = ("csv", "markdown", "latex", "parquet", "lm-eval", "mlflow")


def _add_report(verbs: "argparse._SubParsersAction[Parser]") -> None:
    report = verbs.add_parser(
        "report",
        description="combine the tables and figures of past runs",
        examples=["factsweep report", "factsweep report demo other results=/srv/results"],
    )
    report.take(rest="runs", about="RUNS are names of runs; default all.", run=_report)
    report.option("--out", "where to write; default results/report")
    report.option("--parser", "a spaCy pipeline: syntax, in the papers' Table 8")
    report.option("--encoder", "a sentence encoder, folder or id: semantics, there")
    export = verbs.add_parser(
        "export",
        description="write the metrics of a past run for other tools",
        examples=["factsweep export demo --format latex", "factsweep export demo results=/srv"],
    )
    export.take("run_name", about="RUN_NAME is the name of a folder of results.", run=_export)
    export.option("--format", "default csv", choices=_FORMATS, default="csv")
    export.option(
        "--out", "a folder; default results/RUN_NAME/export (mlflow: $MLFLOW_TRACKING_URI)"
    )


def _report(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.config.folders import below
    from factsweep.pipeline.inputs.describe import open_measures
    from factsweep.pipeline.results.report import report

    results = places(asked)["results"]
    out = asked.out or below(results, "report")
    with open_measures(asked.parser, asked.encoder) as (parse, encode):
        for line in report(asked.runs, results, out, parse=parse, encode=encode):
            print(line)
    return 0


def _export(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.results.results import export

    print(export(asked.run_name, places(asked)["results"], asked.format, asked.out))
    return 0

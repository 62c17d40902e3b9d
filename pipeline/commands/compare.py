"""The verbs `compare`, `report`, `export` and `published`: past runs and the papers, read again."""

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from factsweep.operators.errors import InputError
from factsweep.pipeline.commands.arguments import (
    PLACES,
    Parser,
    fit_to_terminal,
    is_override,
    other_overrides,
    places,
)

if TYPE_CHECKING:
    from factsweep.pipeline.results.compare import ComparedRuns

_MAX_NAMES = 10


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
        keys=_list_keys,
        group="comparison.",
        about="FIRST and SECOND are runs, or settings of runs, as demo:4-template.",
        run=_compare,
    )
    compare.add_argument(
        "--out", help="where to write; default results/compare/<first>/to/<second>"
    )
    paired = "pair prompts or facts; default: prompts, as far as both have any"
    compare.add_argument("--by", help=paired, choices=["prompt", "fact"])
    differ = "compare even if they differ in more than model, setting and seed; tables are marked"
    compare.flag("--anyway", differ)
    fails = "FIRST is the baseline: exit with 3 after a regression, with 4 without enough evidence"
    compare.flag("--gate", fails)


def _compare(args: argparse.Namespace) -> int:
    from factsweep.operators.wording import safe_names
    from factsweep.pipeline.config.folders import below
    from factsweep.pipeline.results.compare import compare_runs, settings

    runs = args.first, args.second
    for name in runs:
        safe_names.check_run(name.partition(":")[0])
    comparison = settings(dict(map(_parse_override, other_overrides(args))))
    results = places(args)["results"]
    out = args.out or below(
        results, f"compare/{safe_names.comparison_folder(*map(_folder_name, runs))}"
    )
    options = {"anyway": args.anyway, "unit": args.by, "is_baseline": args.gate}
    pairs = compare_runs(*runs, results, comparison, **options)
    outcomes = _write_and_print(pairs, out)
    if not args.gate or outcomes <= {"no change", "improvement"}:
        return 0
    return 3 if "regression" in outcomes else 4


def _write_and_print(comparisons: "Iterable[ComparedRuns]", out: str) -> set[str]:
    from factsweep.operators.tables.formats import markdown
    from factsweep.pipeline.storage.store import Store
    from factsweep.pipeline.storage.tables import drop_reports, write_report

    outcomes: set[str] = set()
    folders = []
    for result in comparisons:
        pair = result.pair
        folders.append(_folder_name(f"{pair.first.benchmark}-{pair.title}"))
        store = Store(f"{out}/{folders[-1]}")
        write_report(store, result.report)
        print("\n" * bool(outcomes), end="")
        names = f"{pair.names[1]} against {pair.names[0]} on {pair.first.benchmark}"
        lines = [
            f"{names}: {result.paired}\n",
            *(f"asked differently: {line}" for line in pair.prompt_differences),
            *(
                f"(!) differs in more than model, setting and seed: {line}"
                for line in pair.departures
            ),
            fit_to_terminal(markdown(result.report.tables["headline"])),
            f"{result.p_note}\n",
            fit_to_terminal(markdown(result.report.tables["moves"])),
            result.conclusion,
            lost_and_gained(result.lost_facts, result.n_gained),
            f"tables, facts gained and lost, figure, raw numbers: {store.where()}/",
        ]
        print("\n".join(lines))
        outcomes.add(result.verdict.outcome)
    drop_reports(Store(out), besides=folders)
    return outcomes


def _folder_name(name: str) -> str:
    return name.replace(":", "-").replace(" ", "-")


def _list_keys() -> list[str]:
    from dataclasses import fields

    from factsweep.pipeline.results.compare import Comparison

    return [*(field.name for field in fields(Comparison)), *PLACES]


def lost_and_gained(lost: Sequence[str], n_gained: int) -> str:
    """How many facts were lost and gained, and the first of the lost by name.

    >>> lost_and_gained(["Peru (P36 capital)"], 2)
    'facts: 1 lost, 2 gained; lost: Peru (P36 capital)'
    """
    cut = f" and {len(lost) - _MAX_NAMES} more" if len(lost) > _MAX_NAMES else ""
    names = f"; lost: {', '.join(lost[:_MAX_NAMES])}{cut}" if lost else ""
    return f"facts: {len(lost)} lost, {n_gained} gained{names}"


def _parse_override(text: str) -> tuple[str, object]:
    """`alpha=0.01` as a name and a value."""
    import yaml

    from factsweep.operators.errors import input_errors

    name, _, value = text.partition("=")
    with input_errors(text, "write it as in YAML: 0.05, [acc_at_1]"):
        return name, yaml.safe_load(value)


_FILES = ("csv", "markdown", "latex", "parquet", "lm-eval", "samples", "eee", "inspect", "hf")
_FORMATS = (*_FILES, "mlflow", "wandb", "trackio")


def _add_report(verbs: "argparse._SubParsersAction[Parser]") -> None:
    report = verbs.add_parser(
        "report",
        description="combine the tables and figures of past runs",
        examples=[
            "factsweep report",
            "factsweep report demo other results=/srv/results",
            "factsweep report --profile zero-shot 4-shot samples bear",
        ],
    )
    report.take(rest="runs", about="RUNS are names of runs; default all.", run=_report)
    report.add_argument("--out", help="where to write; default results/report (or profile)")
    report.add_argument("--parser", help="a spaCy pipeline: syntax, in the papers' Table 8")
    report.add_argument("--encoder", help="a sentence encoder, folder or id: semantics, there")
    profile = "by which of these runs of one model each fact is found; again for another model"
    report.add_argument("--profile", nargs="+", action="append", metavar="RUN", help=profile)
    export = verbs.add_parser(
        "export",
        description="write the metrics of a past run for other tools",
        examples=[
            "factsweep export demo --format latex",
            "factsweep export demo --metrics acc_at_1,consist --settings zero-shot",
        ],
    )
    export.take("run_name", about="RUN_NAME is the name of a folder of results.", run=_export)
    about_formats = f"{', '.join(_FORMATS)}; default csv (docs/exports.md)"
    export.add_argument(
        "--format", help=about_formats, choices=_FORMATS, default="csv", metavar="FORMAT"
    )
    export.add_argument(
        "--out", help="a folder; default results/RUN_NAME/export (mlflow: $MLFLOW_TRACKING_URI)"
    )
    wide = "a row per setting and a column per metric, over all facts, in this order:"
    export.add_argument("--metrics", help=f"{wide} acc_at_1,consist")
    export.add_argument("--settings", help="likewise: zero-shot,4-template; default all")
    published = verbs.add_parser(
        "published",
        description="print the papers' numbers, with or without a run's beside them",
        examples=["factsweep published llama3-8b", "factsweep published llama3-8b --beside mine"],
    )
    published.take(
        rest="models",
        about="MODELS are names; default all.",
        run=_print_published,
        known_words=_published_models,
    )
    published.add_argument(
        "--beside", metavar="RUN", help="its numbers, whatever its model, and their difference"
    )


def _report(args: argparse.Namespace) -> int:
    from factsweep.pipeline.config.folders import below
    from factsweep.pipeline.inputs.describe import open_measures
    from factsweep.pipeline.results.report import report

    if args.profile is not None:
        return _print_profile(args)
    results = places(args)["results"]
    out = args.out or below(results, "report")
    with open_measures(args.parser, args.encoder) as (parse, encode):
        for line in report(args.runs, results, out, parse=parse, encode=encode):
            print(line)
    return 0


def _print_profile(args: argparse.Namespace) -> int:
    from factsweep.operators.wording import safe_names
    from factsweep.pipeline.config.folders import below
    from factsweep.pipeline.results.profile import report_profile

    # An option takes all words behind it, overrides, too.
    groups = [[word for word in group if not is_override(word)] for group in args.profile]
    args.words += [word for group in args.profile for word in group if is_override(word)]
    args.command.signature.sort_arguments(args, args.command.verb)
    if args.runs or not all(groups):
        raise InputError("--profile takes the runs behind it, at least one: --profile A B C.")
    for name in (name for group in groups for name in group):
        safe_names.check_run(name.partition(":")[0])
    results = places(args)["results"]
    for line in report_profile(groups, results, args.out or below(results, "profile")):
        print(fit_to_terminal(line))
    return 0


def _export(args: argparse.Namespace) -> int:
    from factsweep.pipeline.exports.export import export

    chosen = {"metrics": args.metrics, "settings": args.settings}
    print(export(args.run_name, places(args)["results"], args.format, args.out, **chosen))
    return 0


def _published_models() -> list[str]:
    from factsweep.pipeline.results.published import models

    return models()


def _print_published(args: argparse.Namespace) -> int:
    from factsweep.operators.tables.formats import markdown
    from factsweep.pipeline.results.published import build_paper_tables

    tables = build_paper_tables(args.models, args.beside, places(args)["results"])
    print("\n".join(f"{x.title}\n\n{fit_to_terminal(markdown(x.rows))}" for x in tables), end="")
    return 0

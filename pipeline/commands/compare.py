"""The verb `compare`: two settings of past runs, fact by fact."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.commands.arguments import PLACES, Parser, others, places
from pipeline.commands.shown import shown

if TYPE_CHECKING:
    from pipeline.results.compare import Comparison
    from pipeline.results.pairs import Pair

_N_NAMED = 10


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
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
        "first",
        "second",
        keys=_keys,
        group="comparison.",
        about="FIRST and SECOND are runs, or settings of runs, as demo:4-template.",
    )
    compare.add_argument(
        "--out", help="where to write; default results/compare/<first>/to/<second>"
    )
    paired = "pair prompts or facts; default: prompts, as far as both have any"
    compare.add_argument("--by", choices=["prompt", "fact"], help=paired)
    differ = "compare even if they differ in more than model, setting and seed; tables are marked"
    compare.add_argument("--anyway", action="store_true", help=differ)
    gate = "exit with 3 after a regression, with 4 where the evidence is not enough"
    compare.add_argument("--gate", action="store_true", help=gate)
    compare.set_defaults(run=_compare)


def _compare(asked: argparse.Namespace) -> int:
    from operators import names
    from operators.tables.formats.markdown import markdown
    from pipeline.results import compare_estimates
    from pipeline.results.compare import compared, settings
    from pipeline.storage.store import Store
    from pipeline.storage.tables import drop_reports, write_report

    runs = asked.first, asked.second
    for name in runs:
        names.check_run(name.partition(":")[0])
    given = settings(dict(map(_assigned, others(asked))))
    results = places(asked)["results"]
    out = asked.out or f"{results}/compare/{names.compared(*map(_folder, runs))}"
    if compare_estimates.concerns(*runs, results):
        return _compare_estimates(asked, given, results, out)
    outcomes: set[str] = set()
    folders = []
    for found in compared(*runs, results, given, anyway=asked.anyway, unit=asked.by):
        pair = found.pair
        folders.append(_folder(f"{pair.first.benchmark}-{pair.title}"))
        store = Store(f"{out}/{folders[-1]}")
        write_report(store, found.report)
        one, other = pair.names
        print("\n" * bool(outcomes), end="")
        print(f"{other} against {one} on {pair.first.benchmark}: {found.paired}\n")
        _print_differing(pair)
        print(shown(markdown(found.report.tables["headline"])))
        print(shown(markdown(found.report.tables["moves"])))
        print(f"{found.verdict.outcome}: {found.verdict.reason}")
        print(lost_and_gained(found.lost, found.n_gained))
        print(f"tables, facts gained and lost, figure, raw numbers: {store.where()}/")
        outcomes.add(found.verdict.outcome)
    drop_reports(Store(out), besides=folders)
    return _exit_code(outcomes) if asked.gate else 0


def _compare_estimates(
    asked: argparse.Namespace, given: "Comparison", results: str, out: str
) -> int:
    """Compare runs of which one asked a part of its prompts, or both."""
    from operators.errors import InputError
    from operators.tables.formats.markdown import markdown
    from pipeline.results.compare_estimates import compared
    from pipeline.storage.store import Store
    from pipeline.storage.tables import drop_reports, write_report

    if asked.by is not None:
        raise InputError(
            f"--by {asked.by} pairs prompts or facts, and estimates are of a part of the prompts; "
            "leave it out, or compare full runs."
        )
    outcomes: set[str] = set()
    folders = []
    for found in compared(asked.first, asked.second, results, given, anyway=asked.anyway):
        pair = found.pair
        folders.append(_folder(f"{pair.first.benchmark}-{pair.title}"))
        store = Store(f"{out}/{folders[-1]}")
        write_report(store, found.report)
        one, other = pair.names
        print("\n" * bool(outcomes), end="")
        print(f"{other} against {one} on {pair.first.benchmark}. {found.mark}\n")
        _print_differing(pair)
        print(shown(markdown(found.report.tables["headline"])))
        print(f"{found.verdict.outcome}: {found.verdict.reason}")
        print(f"tables, raw numbers: {store.where()}/")
        outcomes.add(found.verdict.outcome)
    drop_reports(Store(out), besides=folders)
    return _exit_code(outcomes) if asked.gate else 0


def _print_differing(pair: "Pair") -> None:
    for line in pair.asked:
        print(f"asked differently: {line}")
    for line in pair.departures:
        print(f"(!) differs in more than model, setting and seed: {line}")


def _exit_code(outcomes: set[str]) -> int:
    """What a gate ends with."""
    if outcomes <= {"no change", "improvement"}:
        return 0
    return 3 if "regression" in outcomes else 4


def _folder(name: str) -> str:
    """A run or a setting as the name of a folder: `demo:4-template scope=prompt`."""
    return name.replace(":", "-").replace(" ", "-")


def _keys() -> list[str]:
    """What decides a comparison (conf/comparison/), and where things lie."""
    from dataclasses import fields

    from pipeline.results.compare import Comparison

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

    from operators.errors import refusing

    name, _, value = text.partition("=")
    with refusing(text, "write it as in YAML: 0.05, [acc_at_1]"):
        return name, yaml.safe_load(value)

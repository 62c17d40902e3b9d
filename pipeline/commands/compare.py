"""The verb `compare`: two past runs, fact by fact."""

import argparse
from collections.abc import Sequence

from pipeline.commands.arguments import PLACES, Parser, others, places
from pipeline.commands.shown import shown

_N_NAMED = 10


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    compare = verbs.add_parser(
        "compare",
        description="compare two past runs, fact by fact",
        examples=["factsweep compare A B", "factsweep compare A B smallest_difference=0.05 --gate"],
    )
    compare.take(
        "first",
        "second",
        keys=_keys,
        group="comparison.",
        about="FIRST and SECOND are names of runs.",
    )
    compare.add_argument(
        "--out", help="where to write; default results/compare/<first>/to/<second>"
    )
    differ = "compare even if they differ in more than the model; the tables say so"
    compare.add_argument("--anyway", action="store_true", help=differ)
    gate = "exit with 3 after a regression, with 4 where the evidence is not enough"
    compare.add_argument("--gate", action="store_true", help=gate)
    compare.set_defaults(run=_compare)


def _compare(asked: argparse.Namespace) -> int:
    from operators import names
    from operators.tables.formats.markdown import markdown
    from pipeline.results.compare import compared, settings
    from pipeline.storage.store import Store
    from pipeline.storage.tables import write_report

    for name in (asked.first, asked.second):
        names.check_run(name)
    given = settings(dict(map(_assigned, others(asked))))
    results = places(asked)["results"]
    out = asked.out or f"{results}/compare/{names.compared(asked.first, asked.second)}"
    outcomes = set()
    for found in compared(asked.first, asked.second, results, given, anyway=asked.anyway):
        store = Store(f"{out}/{found.benchmark}-{found.setting.replace(' ', '-')}")
        write_report(store, found.report)
        print(
            f"\n{found.names[1]} against {found.names[0]}: {found.setting} on {found.benchmark}\n"
        )
        for line in found.departures:
            print(f"differs in more than the model: {line}")
        print(shown(markdown(found.report.tables["headline"])))
        print(shown(markdown(found.report.tables["moves"])))
        print(f"{found.verdict.outcome}: {found.verdict.reason}")
        print(lost_and_gained(found.lost, found.n_gained))
        print(f"tables, facts gained and lost, figure: {store.where()}/")
        outcomes.add(found.verdict.outcome)
    if not asked.gate or outcomes <= {"no change", "improvement"}:
        return 0
    return 3 if "regression" in outcomes else 4


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

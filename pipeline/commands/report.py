"""The verb `report`: past runs together."""

import argparse

from factsweep.pipeline.commands.arguments import Parser, places


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    report = verbs.add_parser(
        "report",
        description="combine the tables and figures of past runs",
        examples=["factsweep report", "factsweep report demo other results=/srv/results"],
    )
    report.take(rest="runs", about="RUNS are names of runs; default all.")
    report.add_argument("--out", help="where to write; default results/report")
    report.add_argument("--parser", help="a spaCy pipeline: syntax, in the papers' Table 8")
    report.add_argument("--encoder", help="a sentence encoder, folder or id: semantics, there")
    report.set_defaults(run=_report)


def _report(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.inputs.describe import measures
    from factsweep.pipeline.reports.report import report

    results = places(asked)["results"]
    out = asked.out or f"{results}/report"
    with measures(asked.parser, asked.encoder) as (parse, encode):
        for line in report(asked.runs, results, out, parse=parse, encode=encode):
            print(line)
    return 0

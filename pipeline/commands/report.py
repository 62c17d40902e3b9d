"""The verb `report`: past runs together."""

import argparse


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command line."""
    report = verbs.add_parser("report", help="combine the tables and figures of past runs")
    report.add_argument("runs", nargs="*", help="names of runs; default all")
    report.add_argument(
        "--results", default="results", help="the folder of results; default results"
    )
    report.add_argument("--out", help="where to write; default results/report")
    report.add_argument("--parser", help="a spaCy pipeline: syntax, in the papers' Table 8")
    report.add_argument("--encoder", help="a sentence encoder, folder or id: semantics, there")
    report.set_defaults(run=_report)


def _report(asked: argparse.Namespace) -> int:
    from pipeline.inputs.describe import measures
    from pipeline.results.report import write_past

    out = asked.out or f"{asked.results}/report"
    with measures(asked.parser, asked.encoder) as (parse, encode):
        for line in write_past(asked.runs, asked.results, out, parse=parse, encode=encode):
            print(line)
    return 0

"""The verb `report`: past runs together."""

import argparse


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command line."""
    report = verbs.add_parser("report", help="put the tables and figures of past runs together")
    report.add_argument("runs", nargs="*", help="names of runs; none: all that there are")
    report.add_argument("--results", default="results", help="where the results of runs lie")
    report.add_argument("--out", help="where to write; results/report")
    report.set_defaults(run=_report)


def _report(asked: argparse.Namespace) -> int:
    from pipeline.stages.report import write_past

    for line in write_past(asked.runs, asked.results, asked.out or f"{asked.results}/report"):
        print(line)
    return 0

"""The verbs `report` and `export`: past runs together, and one in the formats of other tools."""

import argparse

from factsweep.pipeline.commands.arguments import Parser, places

_FORMATS = ("csv", "markdown", "latex", "parquet", "lm-eval", "mlflow")


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verbs to the command line."""
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
    from factsweep.pipeline.inputs.describe import measures
    from factsweep.pipeline.results.several_runs import report
    from factsweep.pipeline.storage.store import below

    results = places(asked)["results"]
    out = asked.out or below(results, "report")
    with measures(asked.parser, asked.encoder) as (parse, encode):
        for line in report(asked.runs, results, out, parse=parse, encode=encode):
            print(line)
    return 0


def _export(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.results.export import export

    print(export(asked.run_name, places(asked)["results"], asked.format, asked.out))
    return 0

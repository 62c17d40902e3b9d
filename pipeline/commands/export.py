"""The verb `export`: a past run in the formats that other tools read."""

import argparse

from factsweep.pipeline.commands.arguments import Parser, places

_FORMATS = ("csv", "markdown", "latex", "parquet", "lm-eval", "mlflow")


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    text = "write the metrics of a past run for other tools"
    export = verbs.add_parser(
        "export",
        description=text,
        examples=[
            "factsweep export demo --format latex",
            "factsweep export demo results=/srv",
        ],
    )
    export.take("run_name", about="RUN_NAME is the name of a folder of results.")
    export.add_argument("--format", choices=_FORMATS, default="csv", help="default csv")
    export.add_argument(
        "--out", help="a folder; default results/RUN_NAME/export (mlflow: $MLFLOW_TRACKING_URI)"
    )
    export.set_defaults(run=_export)


def _export(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.reports.export import export

    print(export(asked.run_name, places(asked)["results"], asked.format, asked.out))
    return 0

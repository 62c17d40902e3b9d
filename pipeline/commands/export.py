"""The verb `export`: a past run in the formats that other tools read."""

import argparse

_FORMATS = ("csv", "markdown", "latex", "parquet", "lm-eval", "mlflow")


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command line."""
    text = "write the metrics of a past run for other tools"
    export = verbs.add_parser("export", help=text, description=text)
    export.add_argument("run_name", metavar="run", help="the name of a run")
    export.add_argument("--format", choices=_FORMATS, default="csv", help="default csv")
    export.add_argument(
        "--results", default="results", help="the folder of results; default results"
    )
    export.add_argument(
        "--out", help="a folder; default results/<run>/export (mlflow: MLFLOW_TRACKING_URI)"
    )
    export.set_defaults(run=_export)


def _export(asked: argparse.Namespace) -> int:
    from pipeline.results.export import export

    print(export(asked.run_name, asked.results, asked.format, asked.out))
    return 0

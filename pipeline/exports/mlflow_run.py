"""MLflow: a run with its configuration, numbers and tables, in a folder or on a server."""

import os
from pathlib import Path

from factsweep.operators.errors import InputError
from factsweep.operators.tables.trackers import mlflow_metrics, mlflow_params, mlflow_tags
from factsweep.pipeline.exports.exported_run import ExportedRun, load_tracker
from factsweep.pipeline.machine.secrets import hidden
from factsweep.pipeline.machine.urls import split_url
from factsweep.pipeline.results.run_record import read_file
from factsweep.pipeline.storage.store import Store


def log_to_mlflow(exported: ExportedRun, out: str | None) -> str:
    """Log a run to a folder, or to MLFLOW_TRACKING_URI; returns the address."""
    mlflow = load_tracker("mlflow", "MLflow")
    if out is not None:
        mlflow.set_tracking_uri(Path(out).absolute().as_uri())
    elif "MLFLOW_TRACKING_URI" not in os.environ:
        raise InputError(
            "MLFLOW_TRACKING_URI is not set; set it to your MLflow server, such as "
            "http://127.0.0.1:5000, or name a folder with --out."
        )
    if split_url(mlflow.get_tracking_uri(), "$MLFLOW_TRACKING_URI").scheme in ("", "file"):
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # MLflow would rather have a data base
    record, store = exported.record, Store(exported.results.folder)
    try:
        mlflow.set_experiment("factsweep")
        with mlflow.start_run(run_name=record["run"]["name"], tags=mlflow_tags(record)) as active:
            mlflow.log_params(mlflow_params(record))
            mlflow.log_metrics(mlflow_metrics(exported.metrics))
            for name in record["files"]:
                if name.startswith("tables/"):
                    mlflow.log_text(read_file(store, name, record).decode(), name)
    except mlflow.exceptions.MlflowException as error:
        first = str(error).splitlines()[0]
        raise InputError(f"MLflow refused the run ({first}); check MLFLOW_TRACKING_URI.") from error
    return f"{hidden(mlflow.get_tracking_uri())}, run {active.info.run_id}"

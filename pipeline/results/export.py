"""export: the numbers of a past run in the formats that other tools read."""

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.metrics.shared.metric import higher_is_better
from factsweep.operators.tables.formats import csv, latex, markdown
from factsweep.operators.tables.runs.estimates import estimates_table
from factsweep.operators.tables.shared.numbers import as_printed
from factsweep.operators.tables.trackers import (
    harness_path,
    harness_results,
    mlflow_metrics,
    mlflow_params,
    mlflow_tags,
)
from factsweep.operators.wording import listed
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.machine.secrets import hidden
from factsweep.pipeline.results import estimates, past
from factsweep.pipeline.results.record import EXPORTS, file
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import parquet

_NUMBERS, _DIGITS = ("value", "ci_low", "ci_high"), 4


def export(run: str, results: str, form: str, out: str | None) -> str:
    """Write the metrics of a run in a format of `FORMATS`; returns where.

    Raises:
        InputError: there is no such run, or it lacks what the format needs.
        DamagedFileError: its results are not what was written.
    """
    if estimates.is_estimate(results, run):
        name, content = _estimated(run, results, form)
    else:
        store = Store(below(results, run))
        record = past.record(results, run)
        metrics = past.metrics(store)
        if form == "mlflow":
            return _log_to_mlflow(run, store, metrics, record, out)
        if form == "lm-eval":
            name, content = _lm_eval(metrics, record)
        else:
            name, write = _METRICS[form]
            content = write(metrics)
    target = Store(out or below(results, f"{run}/{EXPORTS}"))
    target.put(name, content)
    return target.where(name)


def _estimated(run: str, results: str, form: str) -> tuple[str, bytes]:
    """The estimates of a run, each row with its share of the prompts, as a file."""
    if form not in _ESTIMATES:
        raise InputError(
            f"{run} has estimates from a part of the prompts, which --format {form} cannot mark as "
            f"such; take {listed(_ESTIMATES, 'or')}, or run it without budget=."
        )
    name, write = _ESTIMATES[form]
    return name, write(estimates.read(results, run).estimates)


def _written(metrics: pl.DataFrame) -> pl.DataFrame:
    """The numbers as texts, with as many digits as in the tables; Parquet has them unrounded."""
    return metrics.with_columns(as_printed(name).alias(name) for name in _NUMBERS)


def _forms(
    name: str, numbers: Callable[[pl.DataFrame], str], texts: Callable[[pl.DataFrame], pl.DataFrame]
) -> Mapping[str, tuple[str, Callable[[pl.DataFrame], bytes]]]:
    """The files of some rows by their format: `numbers` for programs, `texts` for people."""
    return {
        "csv": (f"{name}.csv", lambda rows: numbers(rows).encode()),
        "markdown": (f"{name}.md", lambda rows: markdown(texts(rows)).encode()),
        "latex": (f"{name}.tex", lambda rows: latex(texts(rows)).encode()),
        "parquet": (f"{name}.parquet", parquet),
    }


_METRICS = _forms(
    "metrics", lambda rows: csv(rows.with_columns(pl.col(_NUMBERS).round(_DIGITS))), _written
)
_ESTIMATES = _forms("estimates", lambda rows: csv(rows, digits=_DIGITS), estimates_table)
FORMATS = (*_METRICS, "lm-eval")


def _lm_eval(metrics: pl.DataFrame, record: Mapping[str, Any]) -> tuple[str, bytes]:
    started = _started(record)
    method = METHODS[record["run"]["benchmark"]["method"]]
    found = harness_results(metrics, record, started, higher_is_better(method.measure.metrics))
    content = json.dumps(found, indent=2, allow_nan=False)
    # The harness writes a time without its zone into the name.
    return harness_path(record, started.replace(tzinfo=None)), content.encode()


def _started(record: Mapping[str, Any]) -> datetime:
    if "started" not in record:
        raise InputError(
            f"{record['run']['name']} was written by a factsweep that did not note when it began; "
            "run it again: nothing is decoded twice."
        )
    return datetime.fromisoformat(record["started"]).astimezone(UTC)


def _log_to_mlflow(
    run: str, store: Store, metrics: pl.DataFrame, record: Mapping[str, Any], out: str | None
) -> str:
    """Log a run to a folder, or to where MLFLOW_TRACKING_URI points; returns where."""
    try:
        import mlflow
    except ImportError as error:
        raise InputError(
            "MLflow is not installed; install it with: pip install 'factsweep[mlflow]'"
        ) from error
    if out is not None:
        mlflow.set_tracking_uri(Path(out).absolute().as_uri())
    elif "MLFLOW_TRACKING_URI" not in os.environ:
        raise InputError(
            "MLFLOW_TRACKING_URI is not set; set it to your MLflow server, such as "
            "http://127.0.0.1:5000, or name a folder with --out."
        )
    if urlsplit(mlflow.get_tracking_uri()).scheme in ("", "file"):
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # MLflow would rather have a data base
    try:
        mlflow.set_experiment("factsweep")
        with mlflow.start_run(run_name=run, tags=mlflow_tags(record)) as active:
            mlflow.log_params(mlflow_params(record))
            mlflow.log_metrics(mlflow_metrics(metrics))
            for name in record["files"]:
                if name.startswith("tables/"):
                    mlflow.log_text(file(store, name).decode(), name)
    except mlflow.exceptions.MlflowException as error:
        first = str(error).splitlines()[0]
        raise InputError(f"MLflow refused the run ({first}); check MLFLOW_TRACKING_URI.") from error
    return f"{hidden(mlflow.get_tracking_uri())}, run {active.info.run_id}"

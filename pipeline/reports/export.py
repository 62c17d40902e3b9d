"""export: the numbers of a past run in the formats that other tools read."""

import io
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
from factsweep.operators.tables.formats.csv import csv
from factsweep.operators.tables.formats.latex import latex
from factsweep.operators.tables.formats.lm_eval import harness_path, harness_results
from factsweep.operators.tables.formats.markdown import markdown
from factsweep.operators.tables.formats.mlflow import mlflow_metrics, mlflow_params, mlflow_tags
from factsweep.operators.tables.runs.estimates import estimates_table
from factsweep.operators.tables.shared.numbers import of_metric
from factsweep.operators.wording import listed
from factsweep.pipeline.estimates import written
from factsweep.pipeline.machine.secrets import hidden
from factsweep.pipeline.results import past
from factsweep.pipeline.results.metrics import metrics as measured
from factsweep.pipeline.results.record import EXPORTS, file
from factsweep.pipeline.storage.stores.store import Store

_NUMBERS, _DIGITS = ("value", "ci_low", "ci_high"), 4


def export(run: str, results: str, form: str, out: str | None) -> str:
    """Write the metrics of a run in a format of `FORMATS`; returns where.

    Raises:
        InputError: there is no such run, or it lacks what the format needs.
        DamagedFileError: its results are not what was written.
    """
    if written.is_estimate(results, run):
        return _export_estimates(run, results, form, out)
    store = Store(f"{results.rstrip('/')}/{run}")
    record = past.record(results, run)
    metrics = measured(store, record)
    if form == "mlflow":
        return _log_to_mlflow(run, store, metrics, record, out)
    name, content = FORMATS[form](metrics, record)
    target = Store(out or f"{results.rstrip('/')}/{run}/{EXPORTS}")
    target.put(name, content)
    return target.where(name)


def _export_estimates(run: str, results: str, form: str, out: str | None) -> str:
    """Write the estimates of a run, each row with its share of the prompts; returns where."""
    if form not in _ESTIMATES:
        raise InputError(
            f"{run} has estimates from a part of the prompts, which --format {form} cannot mark as "
            f"such; take {listed(_ESTIMATES, 'or')}, or run it without budget=."
        )
    name, write = _ESTIMATES[form]
    target = Store(out or f"{results.rstrip('/')}/{run}/{EXPORTS}")
    target.put(name, write(written.read(results, run).found.estimates))
    return target.where(name)


def _written(metrics: pl.DataFrame) -> pl.DataFrame:
    """The numbers as texts, with as many digits as in the tables; Parquet has them unrounded."""
    return metrics.with_columns(
        pl.Series(name, [of_metric(row[0]).text(row[1]) for row in rows])
        for name in _NUMBERS
        if (rows := metrics.select("metric", name).rows())
    )


def _csv(metrics: pl.DataFrame, _record: Mapping[str, Any]) -> tuple[str, bytes]:
    return "metrics.csv", csv(metrics.with_columns(pl.col(_NUMBERS).round(_DIGITS))).encode()


def _markdown(metrics: pl.DataFrame, _record: Mapping[str, Any]) -> tuple[str, bytes]:
    return "metrics.md", markdown(_written(metrics)).encode()


def _latex(metrics: pl.DataFrame, _record: Mapping[str, Any]) -> tuple[str, bytes]:
    return "metrics.tex", latex(_written(metrics)).encode()


def _parquet(metrics: pl.DataFrame, _record: Mapping[str, Any]) -> tuple[str, bytes]:
    sink = io.BytesIO()
    metrics.write_parquet(sink)
    return "metrics.parquet", sink.getvalue()


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


FORMATS: Mapping[str, Callable[[pl.DataFrame, Mapping[str, Any]], tuple[str, bytes]]] = {
    "csv": _csv,
    "markdown": _markdown,
    "latex": _latex,
    "parquet": _parquet,
    "lm-eval": _lm_eval,
}


_ESTIMATES: Mapping[str, tuple[str, Callable[[pl.DataFrame], bytes]]] = {
    "csv": ("estimates.csv", lambda rows: csv(rows, digits=_DIGITS).encode()),
    "markdown": ("estimates.md", lambda rows: markdown(estimates_table(rows)).encode()),
    "latex": ("estimates.tex", lambda rows: latex(estimates_table(rows)).encode()),
    "parquet": ("estimates.parquet", lambda rows: _parquet(rows, {})[1]),
}


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
                    mlflow.log_text(file(store, record, name).decode(), name)
    except mlflow.exceptions.MlflowException as error:
        first = str(error).splitlines()[0]
        raise InputError(f"MLflow refused the run ({first}); check MLFLOW_TRACKING_URI.") from error
    return f"{hidden(mlflow.get_tracking_uri())}, run {active.info.run_id}"

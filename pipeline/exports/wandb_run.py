"""Weights & Biases, and Trackio, whose client has the same functions: a run with its numbers."""

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import polars as pl

from factsweep.operators.errors import InputError, input_errors
from factsweep.operators.tables.trackers import mlflow_metrics, mlflow_params, mlflow_tags
from factsweep.pipeline.exports.exported_run import ExportedRun, load_tracker, texts_of

_ENDS = {"low": "ci_low", "high": "ci_high", "n": "n", "n_failed": "n_failed"}


def log_to_wandb(exported: ExportedRun, out: str | None) -> str:
    """Log a run offline to a folder, or as $WANDB_MODE and the login say; returns the address."""
    wandb = load_tracker("wandb", "Weights & Biases")
    # Its client would add the command, the checkout and the machine, which may hold secrets.
    settings = wandb.Settings(
        console="off", disable_git=True, save_code=False, silent=True, x_disable_meta=True
    )
    place = {} if out is None else {"dir": out, "mode": "offline"}
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
    run = _log_run(wandb, exported, id=exported.id, settings=settings, **place)
    return str(Path(run.dir).parent if run.offline else run.url)


def log_to_trackio(exported: ExportedRun, out: str | None) -> str:
    """Log a run to a folder, or as Trackio's variables say; returns the folder or the project."""
    if out is not None:
        os.environ["TRACKIO_DIR"] = out  # read when it is imported
    trackio = load_tracker("trackio", "Trackio")
    if out is not None and Path(trackio.utils.TRACKIO_DIR) != Path(out):
        raise InputError("Trackio already logs to another folder; export in a new process.")
    _log_run(trackio, exported, embed=False, auto_log_gpu=False, auto_log_cpu=False)
    return out or "factsweep"


def _log_run(tracker: Any, exported: ExportedRun, **options: Any) -> Any:
    """Log the configuration and the numbers; an export again continues the same run."""
    name, record = exported.run["name"], exported.record
    config = {**mlflow_params(record), **mlflow_tags(record), **_identify_run(exported)}
    greetings = redirect_stdout(sys.stderr)
    with input_errors(f"the export to {tracker.__name__}", "check its login and folder"), greetings:
        run = tracker.init(project="factsweep", name=name, config=config, resume="allow", **options)
        tracker.log(_list_numbers(exported))
        tracker.finish()
    return run


def _identify_run(exported: ExportedRun) -> Mapping[str, str]:
    data, engine = exported.data_set, exported.engine(exported.results.branches[0])
    metrics = exported.metric_by_name.values()
    values = {
        "run_id": exported.id,
        "data.hub_id": data.hub_id,
        "data.revision": data.revision,
        "data.sha256": data.sha256,
        "engine": " ".join(engine).strip(),
        **{f"better.{metric.name}": metric.better or "neither" for metric in metrics},
    }
    return texts_of(values)


def _list_numbers(exported: ExportedRun) -> Mapping[str, float]:
    metrics = exported.metrics.drop_nulls("value")
    numbers = dict(mlflow_metrics(metrics))
    for end, column in _ENDS.items():
        rows = metrics.with_columns(value=pl.col(column).cast(pl.Float64))
        numbers |= {f"{name}/{end}": n for name, n in mlflow_metrics(rows).items()}
    return numbers

"""Export: the numbers and answers of a run in files, or to servers, of other tools."""

from collections.abc import Callable, Mapping

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.tables.estimates import estimates_table
from factsweep.operators.tables.formats import csv, latex, markdown
from factsweep.operators.tables.shared.numbers import as_printed, numbers_of
from factsweep.operators.tables.shared.selection import (
    numbers_by_setting,
    select_rows,
    texts_by_setting,
)
from factsweep.operators.wording import join_list
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.exports.eee import export_eee
from factsweep.pipeline.exports.exported_run import ExportedRun
from factsweep.pipeline.exports.hub_results import export_hub
from factsweep.pipeline.exports.inspect_log import export_inspect
from factsweep.pipeline.exports.mlflow_run import log_to_mlflow
from factsweep.pipeline.exports.samples import export_results, export_samples
from factsweep.pipeline.exports.wandb_run import log_to_trackio, log_to_wandb
from factsweep.pipeline.results import estimates, past_runs
from factsweep.pipeline.results.results import Results
from factsweep.pipeline.results.run_record import EXPORTS
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import parquet

_NUMBERS, _DIGITS = ("value", "ci_low", "ci_high"), 4


def export(
    run: str,
    results: str,
    form: str,
    out: str | None,
    *,
    metrics: str | None = None,
    settings: str | None = None,
) -> str:
    """Write a run in a format of `FORMATS`, or log it to a tracker; returns the path or address.

    With `metrics` or `settings` (names with commas between them) the table has a row per setting
    and a column per metric, over all facts, in the order of the names.

    Raises:
        InputError: there is no such run, metric or setting, or the run lacks a field of the format.
        DamagedFileError: its results are damaged.
    """
    target = Store(out or below(results, f"{run}/{EXPORTS}"))
    if estimates.is_estimate(results, run):
        if form not in _ESTIMATES:
            raise InputError(
                f"{run} has estimates from a part of the prompts, which --format {form} cannot "
                f"mark as such; take {join_list(_ESTIMATES, 'or')}, or run it without budget=."
            )
        name, write = _ESTIMATES[form]
        rows = estimates.read(results, run).estimates
        content = write(select_rows(rows, metrics, settings))
    else:
        loaded = Results(below(results, run), past_runs.record(results, run))
        is_chosen = metrics is not None or settings is not None
        if is_chosen and form not in _SELECTED:
            raise InputError(
                f"--format {form} has all metrics and settings; choose some of them in "
                f"{join_list(_SELECTED, 'or')}."
            )
        exported = ExportedRun(loaded)
        if form in _LOGGERS:
            return _LOGGERS[form](exported, out)
        if form in _EXPORTERS:
            return _EXPORTERS[form](exported, target)
        name, write = (_SELECTED if is_chosen else _METRICS)[form]
        content = write(
            select_rows(loaded.metrics, metrics, settings) if is_chosen else loaded.metrics
        )
    target.put(name, content)
    return target.where(name)


def _files_by_format(
    name: str, numbers: Callable[[pl.DataFrame], str], texts: Callable[[pl.DataFrame], pl.DataFrame]
) -> Mapping[str, tuple[str, Callable[[pl.DataFrame], bytes]]]:
    """The files of some rows by their format: `numbers` for programs, `texts` for people."""
    return {
        "csv": (f"{name}.csv", lambda rows: numbers(rows).encode()),
        "markdown": (f"{name}.md", lambda rows: markdown(texts(rows)).encode()),
        "latex": (f"{name}.tex", lambda rows: latex(texts(rows)).encode()),
        "parquet": (f"{name}.parquet", parquet),
    }


_ALL_METRICS = [metric for method in METHODS.values() for metric in method.measure.metrics]
_METRICS = _files_by_format(  # as many digits as in the tables; Parquet has them unrounded
    "metrics",
    lambda rows: csv(rows.with_columns(pl.col(_NUMBERS).round(_DIGITS))),
    lambda rows: rows.with_columns(
        as_printed(name, numbers=numbers_of(_ALL_METRICS)).alias(name) for name in _NUMBERS
    ),
)
_SELECTED = _files_by_format(
    "metrics",
    lambda rows: csv(numbers_by_setting(rows), digits=_DIGITS),
    lambda rows: texts_by_setting(rows, _ALL_METRICS),
)
_ESTIMATES = _files_by_format("estimates", lambda rows: csv(rows, digits=_DIGITS), estimates_table)
# Formats that are files, and those that are logged to a tracker.
_EXPORTERS: Mapping[str, Callable[[ExportedRun, Store], str]] = {
    "lm-eval": export_results,
    "samples": export_samples,
    "eee": export_eee,
    "inspect": export_inspect,
    "hf": export_hub,
}
_LOGGERS: Mapping[str, Callable[[ExportedRun, str | None], str]] = {
    "mlflow": log_to_mlflow,
    "wandb": log_to_wandb,
    "trackio": log_to_trackio,
}
FORMATS = (*_METRICS, *_EXPORTERS)

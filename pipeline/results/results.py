"""Results: the numbers of one run, read from its folder, and exported for other tools."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import BESIDE, Report
from factsweep.operators.metrics.shared.rows import higher_is_better
from factsweep.operators.tables.estimates import estimates_table
from factsweep.operators.tables.formats import csv, latex, markdown
from factsweep.operators.tables.shared.numbers import as_printed, numbers_of
from factsweep.operators.tables.shared.selection import (
    numbers_by_setting,
    select_rows,
    texts_by_setting,
)
from factsweep.operators.tables.trackers import (
    harness_path,
    harness_results,
    mlflow_metrics,
    mlflow_params,
    mlflow_tags,
)
from factsweep.operators.wording import count, join_list
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.machine.secrets import hidden
from factsweep.pipeline.machine.urls import split_url
from factsweep.pipeline.results import estimates, past_runs, run_record
from factsweep.pipeline.results.past_runs import PastBranch, Record
from factsweep.pipeline.results.report import PAGE, build_report
from factsweep.pipeline.results.run_record import EXPORTS, read_file
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import parquet

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Results:
    """The results of a run in `folder`, as Polars tables and Matplotlib figures; prints as a card.

    `record` is the content of run.json.
    """

    folder: str
    record: Record

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """Every number with its interval: one row per metric, setting and slice."""
        return past_runs.metrics(Store(self.folder), self.record)

    @property
    def card(self) -> pl.DataFrame:
        """The main numbers, one column per setting."""
        return METHODS[self._benchmark["method"]].show.card(self.metrics)

    @cached_property
    def facts(self) -> Facts:
        """The relations, templates and pairs of the prompts."""
        return self._branches[0].facts

    def answers(self, relation: str | None = None) -> pl.DataFrame:
        """Every prompt with its fact, its text and its answer; of one relation, if it is named.

        All relations of a large benchmark may not fit into memory at once. Columns:
        `pipeline.results.past_runs.answers`.

        Raises:
            InputError: the run asked no such relation, or its artifacts are gone.
        """
        settings = [past_runs.answers(branch, relation) for branch in self._branches]
        return pl.concat(settings, how="diagonal")

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """The tables of the benchmark's method, by name; the same as in the folder tables/."""
        return self._report.tables

    @property
    def figures(self) -> Mapping[str, "Figure"]:
        """Its figures, by name."""
        return self._report.figures

    @cached_property
    def _report(self) -> Report:
        return build_report(self._branches)

    @cached_property
    def _branches(self) -> list[PastBranch]:
        return list(past_runs.settings(self.record["run"]["name"], self.record))

    @property
    def _benchmark(self) -> Record:
        benchmark: Record = self.record["run"]["benchmark"]
        return benchmark

    def __str__(self) -> str:
        run, page = self.record["run"], Store(self.folder).where(PAGE)
        model = run["model"]
        computed = "" if run["answers"] or model.get("endpoint") else f" in {model['dtype']}"
        trusted = f"model.trust_remote_code=true: code of {model['id']} was allowed to run\n"
        return (
            f"{model['name']} on {self._benchmark['name']}{computed}{_part(self._benchmark)}\n\n"
            f"{markdown(self.card)}\n"
            f"{_answers(self.record.get('cost', {}))}"
            f"{trusted if model['trust_remote_code'] else ''}"
            f"page: {page}; tables, figures and every number by relation: "
            f"{Store(self.folder).where()}/"
        )


def load(folder: str | Path, artifacts: str | Path | None = None) -> Results:
    """The results of a finished run, from its folder or URL.

    Facts, answers, tables and figures are made from the run's artifacts; `artifacts` names their
    store if it has moved.

        load("results/demo").answers(relation="P36")

    Raises:
        InputError: the folder has no results.
        DamagedFileError: run.json is damaged.
    """
    folder = str(folder)
    try:
        content = run_record.read(Store(folder))
    except FileNotFoundError as error:
        if Store(folder).exists(run_record.ESTIMATE):
            raise InputError(
                f"{folder} has estimates from a part of the prompts, and load takes a full run; "
                f"read {folder}/{run_record.ESTIMATED}."
            ) from error
        raise InputError(f"{folder} has no run.json; give the folder of a finished run.") from error
    if artifacts is not None:
        content["run"]["artifacts"] = str(artifacts)
    return Results(folder, content)


def _answers(cost: Mapping[str, Mapping[str, float]]) -> str:
    r"""The kinds of answers, if there are more than one per prompt.

    >>> _answers({"generations": {"answers": 960}, "canary": {"answers": 80}})
    '1,040 answers: 960 to the prompts, 80 canary (asked again, to see whether answers change)\n'
    """
    counts = {stage: n for stage, sums in cost.items() if (n := int(sums.get("answers", 0)))}
    if BESIDE.keys().isdisjoint(counts):
        return ""
    parts = [
        f"{n:,} {stage} ({BESIDE[stage]})" if stage in BESIDE else f"{n:,} to the prompts"
        for stage, n in counts.items()
    ]
    return f"{count(sum(counts.values()), 'answer')}: {', '.join(parts)}\n"


def _part(benchmark: Record) -> str:
    """The limits of the measured slice of a benchmark."""
    limits = {
        ("relation", ""): len(benchmark["relations"] or ()),
        ("pair", " per relation"): benchmark["pairs_per_relation"],
        ("name", " per subject"): benchmark["names_per_subject"],
    }
    chosen = [f"{count(n, noun)}{unit}" for (noun, unit), n in limits.items() if n]
    return f", a slice: {', '.join(chosen)}" if chosen else ""


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
    """Write the metrics of a run in a format of `FORMATS`; returns the path.

    With `metrics` or `settings` (names with commas between them) the table has a row per setting
    and a column per metric, over all facts, in the order of the names.

    Raises:
        InputError: there is no such run, metric or setting, or the run lacks a field of the format.
        DamagedFileError: its results are damaged.
    """
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
        store = Store(below(results, run))
        record = past_runs.record(results, run)
        rows = past_runs.metrics(store, record)
        is_chosen = metrics is not None or settings is not None
        if is_chosen and form not in _SELECTED:
            raise InputError(
                f"--format {form} has all metrics and settings; choose some of them in "
                f"{join_list(_SELECTED, 'or')}."
            )
        if form == "mlflow":
            return _log_to_mlflow(run, store, rows, record, out)
        if form == "lm-eval":
            name, content = _lm_eval(rows, record)
        else:
            name, write = (_SELECTED if is_chosen else _METRICS)[form]
            content = write(select_rows(rows, metrics, settings) if is_chosen else rows)
    target = Store(out or below(results, f"{run}/{EXPORTS}"))
    target.put(name, content)
    return target.where(name)


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


_ALL_METRICS = [metric for method in METHODS.values() for metric in method.measure.metrics]
_METRICS = _forms(  # as many digits as in the tables; Parquet has them unrounded
    "metrics",
    lambda rows: csv(rows.with_columns(pl.col(_NUMBERS).round(_DIGITS))),
    lambda rows: rows.with_columns(
        as_printed(name, numbers=numbers_of(_ALL_METRICS)).alias(name) for name in _NUMBERS
    ),
)
_SELECTED = _forms(
    "metrics",
    lambda rows: csv(numbers_by_setting(rows), digits=_DIGITS),
    lambda rows: texts_by_setting(rows, _ALL_METRICS),
)
_ESTIMATES = _forms("estimates", lambda rows: csv(rows, digits=_DIGITS), estimates_table)
FORMATS = (*_METRICS, "lm-eval")


def _lm_eval(metrics: pl.DataFrame, record: Mapping[str, Any]) -> tuple[str, bytes]:
    if "started" not in record:
        raise InputError(
            f"{record['run']['name']} was written by a factsweep that did not note when it began; "
            "run it again: nothing is decoded twice."
        )
    started = datetime.fromisoformat(record["started"]).astimezone(UTC)
    method = METHODS[record["run"]["benchmark"]["method"]]
    results = harness_results(metrics, record, started, higher_is_better(method.measure.metrics))
    content = json.dumps(results, indent=2, allow_nan=False)
    # The harness writes a time without its zone into the name.
    return harness_path(record, started.replace(tzinfo=None)), content.encode()


def _log_to_mlflow(
    run: str, store: Store, metrics: pl.DataFrame, record: Mapping[str, Any], out: str | None
) -> str:
    """Log a run to a folder, or to MLFLOW_TRACKING_URI; returns the address."""
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
    if split_url(mlflow.get_tracking_uri(), "$MLFLOW_TRACKING_URI").scheme in ("", "file"):
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # MLflow would rather have a data base
    try:
        mlflow.set_experiment("factsweep")
        with mlflow.start_run(run_name=run, tags=mlflow_tags(record)) as active:
            mlflow.log_params(mlflow_params(record))
            mlflow.log_metrics(mlflow_metrics(metrics))
            for name in record["files"]:
                if name.startswith("tables/"):
                    mlflow.log_text(read_file(store, name, record).decode(), name)
    except mlflow.exceptions.MlflowException as error:
        first = str(error).splitlines()[0]
        raise InputError(f"MLflow refused the run ({first}); check MLFLOW_TRACKING_URI.") from error
    return f"{hidden(mlflow.get_tracking_uri())}, run {active.info.run_id}"

"""The numbers of a past run: as its results have them, and as its artifacts do."""

from collections.abc import Iterable, Sequence
from math import inf

import polars as pl

from factsweep.operators.errors import DamagedFileError, InputError, UnavailableError
from factsweep.operators.methods import METHODS
from factsweep.operators.metrics.shared.rows import mean_over_seeds, over_seeds
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import past
from factsweep.pipeline.results.past import PastBranch, Record
from factsweep.pipeline.results.record import METRICS, file
from factsweep.pipeline.storage.sealed import RERUN, Stored
from factsweep.pipeline.storage.shard import rows
from factsweep.pipeline.storage.store import Store

# Tables of seeds whose numbers are means over `n` rows each; `n` is what names a row of others.
_WEIGHTED = ("bins",)
_ROUNDING = 1e-9


def metrics(store: Store, found: Record) -> pl.DataFrame:
    """Every number of a run, from its results: one row per metric, setting and slice.

    They are compared with those of its artifacts, where these are still there.

    Raises:
        DamagedFileError: they are not what was written, or not what was measured.
    """
    where = store.where(METRICS)
    shown = rows(file(store, found, METRICS), "metrics", Stored(where))
    _check_ranges(shown, found["run"]["benchmark"]["method"], where)
    try:
        branches = list(past.settings(found["run"]["name"], found))
    except (DamagedFileError, UnavailableError):
        raise
    except InputError as error:  # removed to save room, or left behind when results were moved
        LOG.warning("%s is not held against the run's artifacts: %s", where, error)
        return shown
    if not shown.equals(of_seeds(list(past.by_setting(branches).values()), "metrics")):
        raise DamagedFileError(f"{where} is not what the run's artifacts say{RERUN}")
    return shown


def of_seeds(settings: Iterable[Sequence[PastBranch]], table: str) -> pl.DataFrame:
    """A measured table of settings, each with its seeds; several seeds are one row."""
    tables = [[branch.metrics.read_all(table) for branch in each] for each in settings]
    if all(len(each) == 1 for each in tables):
        return pl.concat([found for each in tables for found in each])
    if table == "metrics":
        return pl.concat(map(over_seeds, tables))
    weight = "n" if table in _WEIGHTED else None
    return pl.concat(mean_over_seeds(each, weight=weight) for each in tables)


def _check_ranges(shown: pl.DataFrame, method: str, where: str) -> None:
    ranges = {each.name: each.range for each in METHODS[method].measure.metrics}
    for metric, value in shown.select("metric", "value").drop_nulls().iter_rows():
        low, high = ranges.get(metric, (-inf, inf))
        if not low - _ROUNDING <= value <= high + _ROUNDING:
            raise DamagedFileError(
                f"{where}: {metric} is {value:.4g}, which is outside {low:g} to {high:g}{RERUN}"
            )

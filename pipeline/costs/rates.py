"""Measured rates: what earlier work took, here and elsewhere, that plans are made from.

data_catalog/rates.csv          what ships with factsweep: measured on the machines it names
<store>/rates/<run>.json        what the runs of a store measured: each adds a file, none is changed
$FACTSWEEP_HOME/rates/<…>.json  what `plan --calibrate` measured from this machine
"""

import hashlib
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import polars as pl

from operators.cost import SPENT, Place
from operators.errors import DamagedFileError
from pipeline.config import folders
from pipeline.config.home import home
from pipeline.config.settings import Run
from pipeline.costs.spending import from_csv, spent, spent_so_far
from pipeline.execution.cluster import hardware
from pipeline.execution.plan import Plan
from pipeline.machine import processor
from pipeline.machine.checkout import commit
from pipeline.storage.sealed import seal, unseal
from pipeline.storage.store import Store

_FOLDER = "rates"
_LOG = logging.getLogger("factsweep")


def known(plan: Plan) -> pl.DataFrame:
    """All that was measured, and what this run has measured so far; a row an artifact."""
    shipped = from_csv((folders.CATALOG / "rates.csv").read_bytes())
    kept = [*_kept(Store(str(home()))), *_kept(_store(plan))]
    rows = pl.concat([spent_so_far(plan), *kept, shipped])
    return rows.unique(["fingerprint", "hardware"], keep="first", maintain_order=True)


def _kept(store: Store) -> Iterator[pl.DataFrame]:
    for name in (f"{_FOLDER}/{each}" for each in store.names(_FOLDER)):
        try:
            rows = unseal(store.get(name), name, store.where(name), "; it is left out.")["rows"]
        except DamagedFileError as error:
            _LOG.warning("%s", error)
            continue
        yield pl.DataFrame(rows, schema=SPENT)


def _store(plan: Plan) -> Store:
    return plan.branches[0].answers.store


def publish(plan: Plan) -> None:
    """Add what the run measured to what its store knows, unless that is known already."""
    rows = spent(plan).drop_nulls("hardware")
    if rows.height:
        keep(_store(plan), rows, plan.run.name)


def keep(store: Store, rows: pl.DataFrame, source: str) -> None:
    """Publish what was measured, under the name of what it was measured on."""
    what = "\n".join(sorted(rows["fingerprint"]))
    name = f"{_FOLDER}/{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"
    if not store.exists(name):
        today = datetime.now(UTC).date().isoformat()
        when = {"date": today, "commit": commit(), "source": source}
        dated = rows.with_columns(pl.lit(value, pl.String).alias(n) for n, value in when.items())
        try:
            store.put(name, seal({"rows": dated.to_dicts()}, name))
        except DamagedFileError:
            _LOG.warning("%s is no file: what the run measured is not kept.", store.where(name))


def place(run: Run) -> Place:
    """Where a plan supposes that the run is: `cluster.hardware`, or else where this is asked."""
    dtype = run.model.computed_in
    if run.cluster.hardware is not None:
        gpus = run.model.tensor_parallel * run.model.pipeline_parallel
        return Place(run.cluster.hardware, gpus, None, processor.cpu(), dtype)
    here = hardware(run)
    return Place(here.name, here.gpus, here.cores, processor.cpu(), dtype)

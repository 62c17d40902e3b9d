"""What the GPUs of a run did: <results>/<run>/logs/gpus.parquet, from each time that it went on."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from factsweep.operators.tables.runs.busy import SPANS
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.results import report

_NAME = "logs/gpus.parquet"


def keep(run: Run, spans: Sequence[Mapping[str, Any]], n_gpus: int) -> None:
    """Add what engines did just now, in a cluster of so many GPUs; nothing where they hold none."""
    if not spans:
        return
    new = pl.DataFrame([{**each, "run": run.name, "there": n_gpus} for each in spans], SPANS)
    content = io.BytesIO()
    pl.concat([known(run), new]).write_parquet(content)
    report.folder(run).put(_NAME, content.getvalue())


def known(run: Run) -> pl.DataFrame:
    """All that was noted of a run; columns: `SPANS`."""
    store = report.folder(run)
    if not store.exists(_NAME):
        return pl.DataFrame(schema=SPANS)
    return pl.read_parquet(io.BytesIO(store.get(_NAME))).match_to_schema(SPANS)

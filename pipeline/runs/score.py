"""score: metrics of answers of another system, in place of those of an engine."""

from pathlib import Path

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods.ability import FILL
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.runs.run import measured
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage import lease


def score(run: Run) -> pl.DataFrame:
    """The metrics of the answers in `answers=`; a prompt without a row counts as failed.

    Raises:
        InputError: no file, a missing column, an unknown or repeated prompt_id, several settings.
    """
    check(run)
    return measured(run, make)


def make(plan: Plan) -> None:
    """Make what is missing of a plan whose answers are given, in this process."""
    wait = plan.run.cluster.when_held == "wait"
    with lease.held(plan.store, plan.missing(), wait=wait) as writer:
        for step in plan.steps:
            step.run(writer.leases.get(step.artifact.folder))


def check(run: Run) -> None:
    """Refuse what cannot be measured of given answers."""
    if run.answers is None:
        raise InputError("score needs answers=<a JSONL or Parquet file, docs/adding.md>.")
    if run.method.ask.ability == FILL:
        raise InputError(f"score measures no encoder's answers; model={run.model.name} is one.")
    if len(run.settings) != 1:
        raise InputError("score measures one setting; name it with prompt=….")
    if not Path(run.answers).is_file():
        raise InputError(f"answers={run.answers} is no file; give a JSONL or Parquet file.")

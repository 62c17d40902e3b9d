"""A budget of hours: the prompts that they pay for, as far as rates are known."""

import logging
from dataclasses import replace

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.budget import budget
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.costs import rates
from factsweep.pipeline.execution.asked import check
from factsweep.pipeline.execution.plan import Plan, planned

_LOG = logging.getLogger("factsweep")


def paid_for(run: Run) -> Run:
    """The run with the number of prompts of each setting that its budget's hours pay for.

    The hours are those of all settings together, from the first prompt on: what is answered
    already counts. Other budgets stay as they are.
    """
    if run.budget is None or budget(run.budget).hours is None:
        return run
    check(run)
    of, plan = budget(run.budget), planned(run)
    hours = _hours_per_prompt(plan, str(of.unit))
    n = int((of.hours or 0.0) / hours)
    if n < 1:
        raise InputError(f"budget={run.budget} pays for no prompt; one takes {hours:.2g} hours.")
    _LOG.info("budget=%s pays for %s prompts of each setting.", run.budget, f"{n:,}")
    return replace(run, budget=str(n))


def _hours_per_prompt(plan: Plan, unit: str) -> float:
    """What one prompt of each setting takes."""
    run = plan.run
    stage = run.method.ask.ability.answers
    titles = [branch.title for branch in plan.branches]
    work = pl.DataFrame({"stage": stage, "setting": titles, "model": run.model.name, "answers": 1})
    costs = rates.predicted(plan, work)
    if costs["seconds"].null_count():
        raise InputError(f"budget={run.budget}: {rates.unknown(run, [stage])}.")
    hours = float(costs[f"{unit.lower()}_hours"].sum())
    if not hours:
        other = "core-hours" if unit == "GPU" else "GPU-hours"
        raise InputError(f"budget={run.budget}: engines use no {unit}-hours here; give {other}.")
    return hours

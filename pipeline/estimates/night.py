"""A night that asks a part of its prompts: what it asks, and what of it is judged.

All prompts of the budget are decoded again, whatever `fresh` says: they take the canary's place.
"""

from collections.abc import Mapping
from dataclasses import replace

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.estimates import written
from factsweep.pipeline.execution import asked
from factsweep.pipeline.execution.plan import planned
from factsweep.pipeline.results.past import PastBranch

NO_BASELINE = (
    "; a full run makes the first: run a night with budget=null, and accept it. An estimate is no "
    "baseline"
)


def check(run: Run) -> None:
    """Refuse a night's run whose answers cannot be asked in part.

    Raises:
        InputError: it has a budget, and there are no estimates of what it measures.
    """
    if run.budget is None:
        return
    if run.answers is not None:
        raise InputError(
            f"budget={run.budget}: the answers in {run.answers} are all there; leave it out."
        )
    asked.check(run)


def controlled(run: Run, baseline: str, before: Mapping[str, PastBranch]) -> Run:
    """The run with the baseline as its control, if that was asked the same prompts."""
    if run.control is not None:
        return run
    known = {each.artifacts["prompts"].folder for each in before.values()}
    same = all(branch.prompts.folder in known for branch in planned(run).branches)
    return replace(run, control=baseline) if same else run


def marks(run: Run) -> dict[str, str | None]:
    """The settings that a night's run has measured, and of what part of the prompts; null: all."""
    if run.budget is None:
        return dict.fromkeys(written.settings(run.results, run.name))
    found = written.read(run.results, run.name)
    return {title: found.mark(title) for title in found.branches}

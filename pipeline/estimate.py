"""estimate: ask the prompts of a budget, and write what the full run would give."""

import logging
from collections import Counter
from collections.abc import Mapping

import polars as pl

from operators.errors import DamagedFileError, InputError
from pipeline.config.settings import Run
from pipeline.execution.plan import Branch, Plan, planned
from pipeline.execution.repair import repair
from pipeline.execution.sampled import names, sampled
from pipeline.execution.work import work
from pipeline.results import control, estimates, journal, past, record, report
from pipeline.results.control import Earlier
from pipeline.run import compute, say_warnings
from pipeline.stages import remaining
from pipeline.stages.estimate import Estimates, Given, estimated
from pipeline.stages.match import Match
from pipeline.storage import uses

_LOG = logging.getLogger("factsweep")


def estimate(settings: Run) -> Estimates:
    """Ask what of the budget is not answered yet, and estimate; tables of all settings.

    Everything that is answered stays in the artifacts of the full run, whose shards stay open.

    Raises:
        InputError: something that was given is wrong, or the results are those of a full run.
        StoppedError: the user asked to stop; the next run resumes.
    """
    past.check_free(settings.results, settings.name)
    store = report.folder(settings)
    if store.exists(record.NAME):
        raise InputError(
            f"{store.where()} has a full run, and an estimate is not put in its place; give "
            "another run_name."
        )
    whole = planned(settings)
    plan = sampled(whole)
    earlier = control.controls(whole)
    with journal.kept(settings):
        renewed = Counter[str]()
        while True:
            try:
                return _made(whole, plan, earlier)
            except DamagedFileError as damage:
                repair(plan, damage, renewed)


def _made(whole: Plan, plan: Plan, earlier: Mapping[str, Earlier]) -> Estimates:
    """Make what is missing, and write what is estimated.

    The run is noted as begun and not as done: its answers are there for a larger budget.
    """
    run = plan.run
    uses.note(
        plan.store, uses.begun(run.name, run.results, [s.artifact.folder for s in plan.steps])
    )
    if not _is_answered(plan):
        journal.begin(plan)
        say_warnings(plan)
        compute(plan)
    parts = [
        _setting(plan.run, branch, before, earlier.get(branch.title))
        for branch, before in zip(plan.branches, whole.branches, strict=True)
    ]
    found = Estimates(*(pl.concat(tables) for tables in zip(*parts, strict=True)))
    store = report.folder(plan.run)
    for name, content in estimates.files(plan, found).items():
        store.put(name, content)
    _LOG.info("done; estimates in %s", store.where(record.ESTIMATES_TEXT))
    return found


def _is_answered(plan: Plan) -> bool:
    """Whether all prompts of the budget have an answer, or a reason why they have none."""
    if not all(step.artifact.is_complete() for step in plan.steps if step.stage is not None):
        return False
    return not any(remaining.left(work(plan)))


def _setting(run: Run, branch: Branch, whole: Branch, earlier: Earlier | None) -> Estimates:
    match = whole.step(whole.matched).stage
    assert isinstance(match, Match)
    assert branch.chosen is not None
    whose = names(run, branch)
    if earlier is None:
        return estimated(match, branch.chosen, whose, of=run, setting=branch.setting)
    earlier.check_prompts(branch.prompts)
    given = Given(earlier.matched.folder, earlier.answers)
    return estimated(match, branch.chosen, whose, of=run, setting=branch.setting, control=given)

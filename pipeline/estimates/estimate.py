"""estimate: ask the prompts of a budget, and write what the full run would give."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.config.budget import Target, target
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.costs.rates import paid_for
from factsweep.pipeline.estimates import control, written
from factsweep.pipeline.estimates.answers import Estimates
from factsweep.pipeline.estimates.blocks import Blocks
from factsweep.pipeline.estimates.control import Named
from factsweep.pipeline.estimates.looks import Narrowing
from factsweep.pipeline.execution.asked import check, sampled
from factsweep.pipeline.execution.faults.repair import repair
from factsweep.pipeline.execution.plan import Plan, planned
from factsweep.pipeline.execution.work import work
from factsweep.pipeline.live import journal
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import past, record, report
from factsweep.pipeline.run import compute, say_warnings
from factsweep.pipeline.score import check as check_answers
from factsweep.pipeline.score import make as make_here
from factsweep.pipeline.stages.asking import remaining
from factsweep.pipeline.storage import uses


def estimate(settings: Run) -> Estimates:
    """Ask what of the budget is not answered yet, and estimate; tables of all settings.

    Everything that is answered stays in the artifacts of the full run, whose shards stay open.
    Where another system's answers are given (`answers=`), those to the budget's prompts are taken.

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
    if settings.answers is not None:
        check_answers(settings)
    settings = paid_for(settings)
    check(settings)
    whole = planned(settings)
    known = control.named(whole)
    for each in known.control.values():
        control.say_missing(each)
    with journal.kept(settings):
        if settings.target is None:
            found = _answered(whole, settings, known)
            _write(whole, settings, found)
        else:
            found = _until_sure(whole, known)
        LOG.info("done; estimates in %s", store.where(record.ESTIMATES_TEXT))
        return found


def _until_sure(whole: Plan, known: Named) -> Estimates:
    """Ask block after block of each setting, until the target's interval is narrow enough.

    After every block the tables are written anew.
    """
    run, done = whole.run, list[Estimates]()
    sentences = list[str]()
    for branch in whole.branches:
        narrowing = Narrowing(_target(run))
        more: str | None = str(run.budget)
        while more is not None:
            now = replace(run, budget=more)
            found = _answered(whole, now, known, [branch.title])
            rows, sentence, more = narrowing.see(found.estimates, more)
            latest = found._replace(estimates=rows)
            LOG.info("%s: %s", branch.title, sentence)
            said = [*sentences, f"{branch.title}: {sentence}"]
            together = Estimates.joined([*done, latest])
            _write(whole, now, together, said, partial=more is not None)
        done, sentences = [*done, latest], said
    return together


def _target(run: Run) -> Target:
    sampling = run.method.measure.sampling
    assert sampling is not None
    return target(str(run.target), sampling.targets)


def _answered(
    whole: Plan,
    run: Run,
    known: Named,
    titles: Sequence[str] | None = None,
) -> Estimates:
    """Ask what is missing of a run's budget, and estimate; what is damaged is made anew.

    Only of the settings with these titles; null: of all. The run is noted as begun and not as done:
    its answers are there for a larger budget.
    """
    plan = sampled(replace(whole, run=run))
    folders = [step.artifact.folder for step in plan.steps]
    uses.note(plan.store, uses.begun(run.name, run.results, folders))
    if titles is not None:
        plan = replace(plan, branches=tuple(b for b in plan.branches if b.title in titles))
    renewed = Counter[str]()
    while True:
        try:
            return _made(plan, known)
        except DamagedFileError as damage:
            repair(plan, damage, renewed)


def _made(plan: Plan, known: Named) -> Estimates:
    if not is_answered(plan):
        journal.begin(plan)
        say_warnings(plan)
        if plan.run.answers is None:
            compute(plan, Blocks)
        else:
            make_here(plan)
    return Estimates.joined(
        control.estimated_setting(plan.run, branch, known) for branch in plan.branches
    )


def _write(
    whole: Plan, run: Run, found: Estimates, sentences: Sequence[str] = (), *, partial: bool = False
) -> None:
    store = report.folder(run)
    files = written.files(sampled(replace(whole, run=run)), found, sentences, partial=partial)
    for name, content in files.items():
        store.put(name, content)


def is_answered(plan: Plan) -> bool:
    """Whether all prompts that a plan asks have an answer, or a reason why they have none."""
    if not all(step.artifact.is_complete() for step in plan.steps if step.stage is not None):
        return False
    return not any(remaining.left(work(plan)))

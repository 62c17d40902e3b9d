"""estimate: ask the prompts of a budget, and write what the full run would give.

With a target more is asked, look after look, until its interval is narrow enough.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import polars as pl

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.estimates.intervals import Z, look, next_share, within_bounds
from factsweep.operators.tables.shared.numbers import SHARE, percent
from factsweep.pipeline.config.budget import Budget, Target, budget, budget_lines, target
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining
from factsweep.pipeline.decoding.costs import paid_for
from factsweep.pipeline.decoding.remaining import work
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import estimates, past, record
from factsweep.pipeline.results.estimates import Controls
from factsweep.pipeline.results.notes import treated
from factsweep.pipeline.runs import journal
from factsweep.pipeline.runs.inventory import begin_use, note_use
from factsweep.pipeline.runs.run import (
    check_answers,
    compute,
    make_given,
    repair,
    say_served,
    say_warnings,
)
from factsweep.pipeline.stages.plan import Plan, check_budget, planned, sampled
from factsweep.pipeline.storage.store import Store

_PERCENT = percent(2)


def estimate(settings: Run) -> pl.DataFrame:
    """Ask what of the budget is not answered yet, and estimate; tables of all settings.

    Everything that is answered stays in the artifacts of the full run, whose shards stay open.
    Where another system's answers are given (`answers=`), those to the budget's prompts are taken.

    Raises:
        InputError: something that was given is wrong, or the results are those of a full run.
        StoppedError: the user asked to stop; the next run resumes.
    """
    past.check_free(settings.results, settings.name)
    store = Store(settings.folder)
    if store.exists(record.NAME):
        raise InputError(
            f"{store.where()} has a full run, and an estimate is not put in its place; give "
            "another run_name."
        )
    if settings.answers is not None:
        check_answers(settings)
    settings = paid_for(settings)
    check_budget(settings)
    whole = planned(settings)
    settings = replace(settings, decoding=whole.run.decoding)
    controls = estimates.controls_of(whole)
    for earlier in controls.values():
        estimates.say_missing(settings, earlier)
    with journal.kept(settings):
        if settings.target is None:
            found = _answered(whole, settings, controls)
            _write(whole, settings, found)
        else:
            found = _until_sure(whole, controls)
        say_served(sampled(whole))
        LOG.info("done; estimates in %s", store.where(record.ESTIMATES_TEXT))
        return found


def _until_sure(whole: Plan, controls: Controls) -> pl.DataFrame:
    """Ask more and more of each setting, until the target's interval is narrow enough.

    After every look the tables are written anew.
    """
    run, done, sentences = whole.run, list[pl.DataFrame](), list[str]()
    sampling = run.method.measure.sampling
    assert sampling is not None
    goal = target(str(run.target), sampling.targets)
    for branch in whole.branches:
        variances = list[float | None]()  # at the looks at this setting
        more: str | None = str(run.budget)
        while more is not None:
            now = replace(run, budget=more)
            found = _answered(whole, now, controls, [branch.title])
            latest, sentence, more = _look(found, goal, budget(more), variances)
            LOG.info("%s: %s", branch.title, sentence)
            said = [*sentences, f"{branch.title}: {sentence}"]
            together = pl.concat([*done, latest])
            _write(whole, now, together, said)
        done, sentences = [*done, latest], said
    return together


def _look(
    found: pl.DataFrame, goal: Target, of: Budget, variances: list[float | None]
) -> tuple[pl.DataFrame, str, str | None]:
    """Look at the estimates of a budget, with the target's interval as wide as all looks need it.

    Also says how far it got, and the next budget; null at the end.
    """
    is_target, wanted = pl.col("metric") == goal.metric, goal.half_width
    row = found.filter(is_target).row(0, named=True)
    value, low, high, n = (row[name] for name in ("value", "full_low", "full_high", "n"))
    # Of those that were asked, answers may be missing.
    share = of.share or min(1.0, float(of.n_prompts or n) / (n / row["share"]))
    part, narrow = f"{_PERCENT.text(share)} of the prompts", f"±{SHARE.text(wanted)}"
    is_known = f"{goal.metric} is {'–' if value is None else SHARE.text(value)}"
    if share >= 1 and low == high:
        return found, f"{is_known}, of all prompts: exactly, since {narrow} took them all.", None
    if low is None:
        variances.append(None)
        more = f"{100 * next_share(share, None, wanted):.6g}%"
        return found, f"{is_known} from {part}, and nothing says yet how exact that is.", more
    variance = (max(high - value, value - low) / Z) ** 2
    variances.append(variance)
    last = look([each for each in variances if each is not None], wanted)
    _, low, high, _ = within_bounds(value, last.half_width)
    wider = found.with_columns(
        pl.when(is_target).then(pl.lit(end)).otherwise(pl.col(name)).alias(name)
        for name, end in (("full_low", low), ("full_high", high))
    )
    is_narrow = last.half_width <= wanted
    looks = f"look {len(variances)}, {last.bound:.2f} standard errors for {Z:.2f}"
    half, compared = SHARE.text(last.half_width), "no wider" if is_narrow else "wider"
    sentence = f"{is_known} ± {half} from {part}, {compared} than {narrow} ({looks})."
    if is_narrow or share >= 1:
        return wider, sentence, None
    return wider, sentence, f"{100 * next_share(share, variance, wanted):.6g}%"


def _answered(
    whole: Plan, run: Run, controls: Controls, titles: Sequence[str] | None = None
) -> pl.DataFrame:
    """Ask what is missing of a run's budget, and estimate; what is damaged is made anew.

    Only of the settings with these titles; null: of all. The run is noted as begun and not as done:
    its answers are there for a larger budget.
    """
    plan = sampled(replace(whole, run=run))
    folders = [step.artifact.folder for step in plan.steps]
    note_use(plan.store, begin_use(run.name, run.results, folders))
    if titles is not None:
        plan = replace(plan, branches=tuple(b for b in plan.branches if b.title in titles))
    renewed = Counter[str]()
    while True:
        try:
            return _made(plan, controls)
        except DamagedFileError as damage:
            repair(plan, damage, renewed)


def _made(plan: Plan, controls: Controls) -> pl.DataFrame:
    if not is_answered(plan):
        journal.begin(plan)
        say_warnings(plan)
        if plan.run.answers is None:
            compute(plan)
        else:
            make_given(plan)
            for line in chain.from_iterable(treated(branch.answers) for branch in plan.branches):
                LOG.warning("%s", line)
    for branch in plan.branches:
        assert branch.chosen is not None, "a budget chooses"
        tables = ((branch.chosen, "chosen"), (branch.prompts, "prompts"), (branch.facts, "pairs"))
        sizes = (sum(artifact.rows(table).values()) for artifact, table in tables)
        first, *few = budget_lines(plan.run, branch.title, *sizes)
        if few:
            LOG.warning("budget=%s is %s.", first, *few)
    return pl.concat(
        estimates.estimated_setting(plan.run, branch, controls) for branch in plan.branches
    )


def _write(whole: Plan, run: Run, found: pl.DataFrame, sentences: Sequence[str] = ()) -> None:
    store = Store(run.folder)
    files = estimates.files(sampled(replace(whole, run=run)), found, sentences)
    for name, content in files.items():
        store.put(name, content)


def is_answered(plan: Plan) -> bool:
    """Whether all prompts that a plan asks have an answer, or a reason why they have none."""
    if not all(step.artifact.is_complete() for step in plan.steps if step.stage is not None):
        return False
    return not any(remaining.left(work(plan)))

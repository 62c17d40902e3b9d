"""estimate: ask the prompts of a budget, and write what the full run would give.

With a target more is asked, look after look, until its interval is narrow enough.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import polars as pl

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.estimates.intervals import Look, Z, look, next_share, within_bounds
from factsweep.operators.tables.shared.numbers import SHARE, percent
from factsweep.pipeline.config.budget import Target, budget, budget_lines, target
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining
from factsweep.pipeline.decoding.rates import paid_for
from factsweep.pipeline.decoding.remaining import work
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import estimates, past, record
from factsweep.pipeline.results.estimates import Controls
from factsweep.pipeline.results.notes import treated
from factsweep.pipeline.runs import journal
from factsweep.pipeline.runs.run import (
    check_answers,
    compute,
    make_given,
    repair,
    say_served,
    say_warnings,
)
from factsweep.pipeline.stages.plan import Plan, check_budget, planned, sampled
from factsweep.pipeline.storage import uses
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
    """Ask block after block of each setting, until the target's interval is narrow enough.

    After every block the tables are written anew.
    """
    run, done, sentences = whole.run, list[pl.DataFrame](), list[str]()
    sampling = run.method.measure.sampling
    assert sampling is not None
    goal = target(str(run.target), sampling.targets)
    for branch in whole.branches:
        narrowing = Narrowing(goal)
        more: str | None = str(run.budget)
        while more is not None:
            now = replace(run, budget=more)
            found = _answered(whole, now, controls, [branch.title])
            latest, sentence, more = narrowing.see(found, more)
            LOG.info("%s: %s", branch.title, sentence)
            said = [*sentences, f"{branch.title}: {sentence}"]
            together = pl.concat([*done, latest])
            _write(whole, now, together, said)
        done, sentences = [*done, latest], said
    return together


def _answered(
    whole: Plan, run: Run, controls: Controls, titles: Sequence[str] | None = None
) -> pl.DataFrame:
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


class Seen(NamedTuple):
    """What a look saw: the estimates, with the target's interval as wide as all looks need it."""

    estimates: pl.DataFrame
    sentence: str  # how far it got
    budget: str | None  # the next one; null at the end


@dataclass
class Narrowing:
    """The looks at one setting's estimates."""

    target: Target
    variances: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def see(self, estimates: pl.DataFrame, asked: str) -> Seen:
        """Look at the estimates of a budget, and say whether more is asked, and how much."""
        is_target = pl.col("metric") == self.target.metric
        row = estimates.filter(is_target).row(0, named=True)
        share = self._share(row, asked)
        self.shares.append(share)
        wanted = self.target.half_width
        if row["full_low"] is None:
            more = as_budget(next_share(share, None, wanted))
            return Seen(estimates, self._sentence(row, None), more)
        half = max(row["full_high"] - row["value"], row["value"] - row["full_low"])
        if half == 0 and share >= 1:
            return Seen(estimates, self._sentence(row, None), None)
        self.variances.append((half / Z) ** 2)
        found = look(self.variances, wanted)
        _, low, high, _ = within_bounds(row["value"], found.half_width)
        wider = estimates.with_columns(
            pl.when(is_target).then(pl.lit(end)).otherwise(pl.col(name)).alias(name)
            for name, end in (("full_low", low), ("full_high", high))
        )
        is_last = found.half_width <= wanted or share >= 1
        next_ = None if is_last else as_budget(next_share(share, self.variances[-1], wanted))
        return Seen(wider, self._sentence(row, found), next_)

    def _share(self, row: dict[str, object], asked: str) -> float:
        """The share that was asked for; answers may be missing."""
        of = budget(asked)
        if of.share is not None:
            return of.share
        n, share = int(str(row["n"])), float(str(row["share"]))
        return min(1.0, float(of.n_prompts or n) / (n / share))

    def _sentence(self, row: dict[str, object], found: Look | None) -> str:
        value, wanted = row["value"], f"±{SHARE.text(self.target.half_width)}"
        asked = f"{_PERCENT.text(self.shares[-1])} of the prompts"
        known = "–" if value is None else SHARE.text(float(str(value)))
        is_known = f"{self.target.metric} is {known}"
        if found is None and self.shares[-1] >= 1:
            return f"{is_known}, of all prompts: exactly, since {wanted} took them all."
        if found is None:
            return f"{is_known} from {asked}, and nothing says yet how exact that is."
        looks = f"look {len(self.shares)}, {found.bound:.2f} standard errors for {Z:.2f}"
        wider = "no wider" if found.half_width <= self.target.half_width else "wider"
        half = SHARE.text(found.half_width)
        return f"{is_known} ± {half} from {asked}, {wider} than {wanted} ({looks})."


def as_budget(share: float) -> str:
    """A share as a budget.

    >>> as_budget(0.0141421356)
    '1.41421%'
    """
    return f"{100 * share:.6g}%"

"""estimate: ask the prompts of a budget, or ever more until a target is met; write estimates."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.estimates.intervals import Z, look, next_share, wider_side, within_bounds
from factsweep.operators.tables.shared.numbers import SHARE, percent
from factsweep.pipeline.config.budget import (
    Budget,
    Target,
    describe_budget,
    parse_budget,
    parse_target,
)
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import estimates, past_runs, run_record
from factsweep.pipeline.results.estimates import Controls
from factsweep.pipeline.results.run_warnings import warn_of_treated
from factsweep.pipeline.runs import run_files
from factsweep.pipeline.runs.inventory import begin_use, note_use
from factsweep.pipeline.runs.preflight import check_plan, is_answered
from factsweep.pipeline.runs.run import (
    check_answers,
    compute,
    log_server_differences,
    make_given,
    repair,
)
from factsweep.pipeline.stages.plan import Plan, build_plan, check_budget, sample_plan
from factsweep.pipeline.storage.store import Store

_PERCENT = percent(2)


def estimate(settings: Run) -> pl.DataFrame:
    """Ask the prompts of the budget that have no answer yet, and estimate; tables of all settings.

    All answers stay in the artifacts of the full run, whose shards stay open. With `answers=`,
    another system's answers to the budget's prompts are read instead.

    Raises:
        InputError: a setting is wrong, or the results are those of a full run.
        StoppedError: the user asked to stop; the next run resumes.
    """
    past_runs.check_free(settings.results, settings.name)
    store = Store(settings.folder)
    if store.exists(run_record.NAME):
        raise InputError(
            f"{store.where()} has a full run, and an estimate is not put in its place; give "
            "another run_name."
        )
    if settings.answers is not None:
        check_answers(settings)
    check_budget(settings)
    full_plan = build_plan(settings)
    settings = full_plan.run
    controls = estimates.find_controls(full_plan)
    for control in controls.values():
        estimates.warn_of_missing(settings, control)
    sentences = check_plan(sample_plan(full_plan))
    with run_files.log_run(settings):
        if settings.target is None:
            tables = _ask_and_estimate(full_plan, settings, controls, sentences)
            _write(full_plan, settings, tables)
        else:
            tables = _ask_until_met(full_plan, controls, sentences)
        log_server_differences(sample_plan(full_plan))
        LOG.info("done; estimates in %s", store.where(run_record.ESTIMATES_TEXT))
        return tables


def _ask_until_met(full_plan: Plan, controls: Controls, sentences: Sequence[str]) -> pl.DataFrame:
    """Ask ever more of each setting until the target is met; each look writes the tables."""
    run, tables, outcomes = full_plan.run, list[pl.DataFrame](), list[str]()
    sampling = run.method.measure.sampling
    assert sampling is not None
    goal = parse_target(str(run.target), sampling.targets)
    for branch in full_plan.branches:
        variances = list[float | None]()  # at the looks at this setting
        next_budget: str | None = str(run.budget)
        while next_budget is not None:
            budget_run = replace(run, budget=next_budget)
            rows = _ask_and_estimate(full_plan, budget_run, controls, sentences, [branch.title])
            rows, sentence, next_budget = _look(rows, goal, parse_budget(next_budget), variances)
            LOG.info("%s: %s", branch.title, sentence)
            all_rows = pl.concat([*tables, rows])
            lines = [*outcomes, f"{branch.title}: {sentence}"]
            _write(full_plan, budget_run, all_rows, lines)
        tables, outcomes = [*tables, rows], lines
    return all_rows


def _look(
    rows: pl.DataFrame, goal: Target, part: Budget, variances: list[float | None]
) -> tuple[pl.DataFrame, str, str | None]:
    """Look at the estimates of a budget, with the target's interval widened for repeated looks.

    Also a sentence on the progress, and the next budget; null at the end.
    """
    is_target = pl.col("metric") == goal.metric
    row = rows.filter(is_target).row(0, named=True)
    value, low, high, n = (row[name] for name in ("value", "full_low", "full_high", "n"))
    # Some prompts of the budget may have no answer.
    share = part.share or min(1.0, float(part.n_prompts or n) / (n / row["share"]))
    share_text = f"{_PERCENT.text(share)} of the prompts"
    goal_text = f"±{SHARE.text(goal.half_width)}"
    is_value = f"{goal.metric} is {'–' if value is None else SHARE.text(value)}"
    if share >= 1 and low == high:
        return rows, f"{is_value}, of all prompts: exactly, since {goal_text} took them all.", None
    if low is None:
        variances.append(None)
        next_budget = f"{100 * next_share(share, None, goal.half_width):.6g}%"
        return rows, f"{is_value} from {share_text}, without an interval yet.", next_budget
    variance = (wider_side(value, low, high) / Z) ** 2
    variances.append(variance)
    last = look([item for item in variances if item is not None], goal.half_width)
    _, low, high, _ = within_bounds(value, last.half_width)
    wider = rows.with_columns(
        pl.when(is_target).then(pl.lit(end)).otherwise(pl.col(name)).alias(name)
        for name, end in (("full_low", low), ("full_high", high))
    )
    is_narrow = last.half_width <= goal.half_width
    looks = f"look {len(variances)}, {last.bound:.2f} standard errors for {Z:.2f}"
    sentence = f"{goal.describe(value, last.half_width, share_text)} ({looks})."
    if is_narrow or share >= 1:
        return wider, sentence, None
    return wider, sentence, f"{100 * next_share(share, variance, goal.half_width):.6g}%"


def _ask_and_estimate(
    full_plan: Plan,
    run: Run,
    controls: Controls,
    sentences: Sequence[str],
    titles: Sequence[str] | None = None,
) -> pl.DataFrame:
    """Ask the missing prompts of a run's budget, repair damaged files, and estimate.

    Only the settings with these titles; null: all. The run is noted as begun and not as done: its
    answers are kept for a larger budget.
    """
    plan = sample_plan(replace(full_plan, run=run))
    note_use(plan.store, begin_use(plan))
    if titles is not None:
        plan = replace(plan, branches=tuple(b for b in plan.branches if b.title in titles))
    renewed = Counter[str]()
    while True:
        try:
            _ask_missing(plan, sentences)
            return pl.concat(
                estimates.estimate_setting(run, branch, controls) for branch in plan.branches
            )
        except DamagedFileError as damage:
            repair(plan, damage, renewed)


def _ask_missing(plan: Plan, sentences: Sequence[str]) -> None:
    if not is_answered(plan):
        run_files.log_start(plan, sentences)
        if plan.run.answers is None:
            compute(plan)
        else:
            make_given(plan)
            for branch in plan.branches:
                for line in warn_of_treated(branch.answers):
                    LOG.warning("%s", line)
    for branch in plan.branches:
        assert branch.chosen is not None, "a budget chooses"
        tables = ((branch.chosen, "chosen"), (branch.prompts, "prompts"), (branch.facts, "pairs"))
        sizes = (sum(artifact.rows(table).values()) for artifact, table in tables)
        budget_text, *warnings = describe_budget(plan.run, branch.title, *sizes)
        if warnings:
            LOG.warning("budget=%s is %s.", budget_text, *warnings)


def _write(full_plan: Plan, run: Run, rows: pl.DataFrame, lines: Sequence[str] = ()) -> None:
    store = Store(run.folder)
    files = estimates.files(sample_plan(replace(full_plan, run=run)), rows, lines)
    for name, content in files.items():
        store.put(name, content)

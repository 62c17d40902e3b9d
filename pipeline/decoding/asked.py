"""The part of a plan that a budget asks: the steps to its answers, of which most stay open."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.wording import count
from factsweep.pipeline.config.budget import Budget, budget
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining
from factsweep.pipeline.decoding.remaining_work import branch_work
from factsweep.pipeline.stages.choose import Choose
from factsweep.pipeline.stages.plan import Branch, Plan, planned
from factsweep.pipeline.stages.step import Step
from factsweep.pipeline.storage.artifact import Artifact


def sampled(plan: Plan) -> Plan:
    """The plan of a run with a budget: no answer but to the prompts that are chosen.

    Raises:
        InputError: the benchmark is none of which parts are asked.
    """
    run = plan.run
    check(run)
    of = budget(str(run.budget))
    assert of.hours is None, "hours are prompts by now"
    return replace(plan, branches=tuple(_part(run, each, of) for each in plan.branches))


def check(run: Run) -> None:
    """Refuse a budget of what is not asked in part."""
    if run.budget is None or run.method.measure.sampling is None:
        raise InputError(
            f"budget={run.budget}: parts of benchmark={run.benchmark.name} are not estimated with "
            "this model; leave it out. Decoders on MyriadLAMA, KAMEL and PRobELM are."
        )


def asked(run: Run) -> Plan:
    """What a run asks: the part of its budget, or all."""
    plan = planned(run)
    return plan if run.budget is None else sampled(plan)


def budget_lines(run: Run, title: str, n: int, whole: int, pairs: int) -> Iterator[str]:
    """What a budget is of a setting, `n` of its prompts; and that they are few, where they are."""
    yield f"{run.budget}: {n:,} of {count(whole, 'prompt')} of {title}"
    sampling = run.method.measure.sampling
    if n < 2 * pairs <= whole and sampling is not None and not sampling.whole_pairs:
        yield (
            f"too few to ask each of {pairs:,} facts twice: only some facts are asked, and the "
            "fluctuation cannot be estimated"
        )


def n_unanswered(run: Run, branch: Branch, needed: pl.DataFrame) -> int:
    """How many of some prompts of a setting have no answer yet, nor a reason why they have none."""
    return remaining.n_lacking(list(branch_work(run, replace(branch, chosen=None))), needed)


def _part(run: Run, branch: Branch, of: Budget) -> Branch:
    prompts, answers = branch.step(branch.prompts), branch.step(branch.answers)
    sampling = run.method.measure.sampling
    seed = run.seed if run.sample_seed is None else run.sample_seed
    stage = Choose(branch.prompts, of, seed, sampling is not None and sampling.whole_pairs)
    chosen = Step(Artifact(branch.prompts.store, stage.recipe), (prompts,), stage)
    asked = replace(answers, after=(*answers.after, chosen))
    steps = (*branch.sources(), prompts, chosen, branch.step(branch.admitted), asked)
    own = replace(branch, match=branch.step(branch.matched).stage)
    return replace(own, again=None, further=(), chosen=chosen.artifact, steps=steps)


def names(run: Run, branch: Branch) -> dict[str, str | None]:
    """The columns of tables that say whose the estimates of a setting are."""
    return {
        "model": run.model.name,
        "benchmark": run.benchmark.name,
        "setting": branch.setting.name,
        "variant": branch.setting.variant,
    }

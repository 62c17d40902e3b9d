"""The part of a plan that a budget asks: the steps to its answers, of which most stay open."""

from dataclasses import replace

from operators.errors import InputError
from pipeline.config.budget import Budget, budget
from pipeline.config.settings import Run
from pipeline.execution.plan import Branch, Plan, Step
from pipeline.stages.choose import Choose
from pipeline.storage.artifact import Artifact


def sampled(plan: Plan) -> Plan:
    """The plan of a run with a budget: no answer but to the prompts that are chosen.

    Raises:
        InputError: the benchmark is none of which parts are asked.
    """
    run = plan.run
    if run.budget is None or run.method.measure.sampling is None:
        raise InputError(
            f"budget={run.budget}: parts of benchmark={run.benchmark.name} are not estimated with "
            "this model; leave it out. Decoders on MyriadLAMA, KAMEL and PRobELM are."
        )
    of = budget(run.budget)
    return replace(plan, branches=tuple(_part(run, each, of) for each in plan.branches))


def _part(run: Run, branch: Branch, of: Budget) -> Branch:
    prompts, answers = branch.step(branch.prompts), branch.step(branch.answers)
    sampling = run.method.measure.sampling
    stage = Choose(branch.prompts, of, run.seed, sampling is not None and sampling.whole_pairs)
    chosen = Step(Artifact(branch.prompts.store, stage.recipe), (prompts,), stage)
    asked = replace(answers, after=(*answers.after, chosen))
    steps = (*branch.sources(), prompts, chosen, branch.step(branch.admitted), asked)
    part = replace(branch, again=None, further=(), chosen=chosen.artifact, steps=steps)
    return replace(part, match=branch.step(branch.matched).stage)


def names(run: Run, branch: Branch) -> dict[str, str | None]:
    """The columns of tables that say whose the estimates of a setting are."""
    return {
        "model": run.model.name,
        "benchmark": run.benchmark.name,
        "setting": branch.setting.name,
        "variant": branch.setting.variant,
    }

"""Steps of few prompts, made in this process: Ray's processes take seconds to start."""

from collections.abc import Mapping

from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.lease import Lease

MOST = 50_000  # prompts in all settings: a few seconds of work


def is_small(plan: Plan) -> bool:
    """Whether a plan has few prompts; false until its facts are complete."""
    facts = plan.branches[0].facts  # the same in every setting
    if not facts.is_complete():
        return False
    n_prompts = int(facts.manifest().counts.get("prompts", MOST))
    return n_prompts * len(plan.branches) < MOST


def make_small_steps(plan: Plan, leases: Mapping[str, Lease]) -> None:
    """Make the facts, and in a small plan every step whose inputs are complete."""
    for step in plan.steps:
        may_run = step.artifact == plan.branches[0].facts or is_small(plan)
        is_ready = all(source.artifact.is_complete() for source in step.after)
        if step.question is None and may_run and is_ready:
            step.run(leases.get(step.artifact.folder))

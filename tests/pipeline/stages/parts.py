"""Plans of which a part is made."""

from dataclasses import replace

from factsweep.pipeline.stages.plan import Branch, Plan


def without(plan: Plan, *roles: str) -> Plan:
    """The plan without the steps that make these: "matched", "metrics"."""

    def kept(branch: Branch) -> Branch:
        gone = [getattr(branch, role) for role in roles]
        return replace(branch, steps=tuple(s for s in branch.steps if s.artifact not in gone))

    return replace(plan, branches=tuple(map(kept, plan.branches)))

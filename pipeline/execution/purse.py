"""What the answers of a server may cost, and have cost."""

import math
from typing import Any

from factsweep.operators.prices import Purse
from factsweep.pipeline.execution.plan import Plan
from factsweep.pipeline.stages.asking import remaining


def paid(plan: Plan) -> float:
    """What the answers of a plan have cost so far, whichever run paid for them."""
    return sum(
        float(counts.get("cost", 0))
        for artifact in plan.answered
        for counts in (*artifact.counts(artifact.stage).values(), *remaining.open_counts(artifact))
    )


class TallyPurse(Purse):
    """The purse that all clients of a run pay from: the tally's."""

    def __init__(self, tally: Any) -> None:
        super().__init__(math.inf)
        self._tally = tally

    def reserve(self, cost: float) -> bool:
        """Set something aside; returns whether there is so much left."""
        import ray

        return bool(ray.get(self._tally.reserve.remote(cost)))

    def settle(self, reserved: float, cost: float) -> None:
        """Pay for something with what was set aside for it."""
        self._tally.settle.remote(reserved, cost)

"""What a run has cost."""

from factsweep.pipeline.execution.plan import Plan
from factsweep.pipeline.execution.purse import paid


def test_answers_without_a_price_cost_nothing(finished: Plan) -> None:
    assert finished.answered
    assert paid(finished) == 0

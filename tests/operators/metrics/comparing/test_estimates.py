"""Differences of estimates, and the verdict on them: laws, then examples."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.comparing.verdict import Known, difference, differences, judged

SHARES = st.floats(0, 1).map(lambda share: round(share, 6))
ESTIMATES = st.tuples(SHARES, SHARES, SHARES).map(sorted).map(lambda e: Known(e[1], e[0], e[2]))
NUMBERS = SHARES.map(lambda value: Known(value, value, value))


@given(first=ESTIMATES, second=ESTIMATES)
def test_difference_lies_in_its_interval_and_swapped_is_the_negative(
    first: Known, second: Known
) -> None:
    found, swapped = difference(first, second), difference(second, first)
    assert found.low <= found.value <= found.high
    assert found == pytest.approx((-swapped.value, -swapped.high, -swapped.low))


@given(first=ESTIMATES, second=NUMBERS)
def test_difference_from_a_full_run_has_the_width_of_the_estimate(
    first: Known, second: Known
) -> None:
    found = difference(first, second)
    assert found.high - found.low == pytest.approx(first.high - first.low, abs=1e-9)
    assert found.low == pytest.approx(second.value - first.high, abs=1e-9)


@given(first=NUMBERS, second=NUMBERS)
def test_difference_of_full_runs_is_exact(first: Known, second: Known) -> None:
    found = difference(first, second)
    assert found.low == found.high == found.value


@given(first=ESTIMATES, second=ESTIMATES)
def test_difference_of_estimates_is_wider_than_each_and_no_wider_than_both(
    first: Known, second: Known
) -> None:
    found = difference(first, second)
    widths = first.high - first.low, second.high - second.low
    assert math.isclose(max(widths), found.high - found.low, abs_tol=1e-9) or (
        max(widths) < found.high - found.low
    )
    assert found.high - found.low <= sum(widths) + 1e-9


def numbers(**values: tuple[float | None, float | None, float | None]) -> pl.DataFrame:
    rows = [(name, *each) for name, each in values.items()]
    return pl.DataFrame(rows, ["metric", "value", "full_low", "full_high"], orient="row")


def test_differences_without_a_value_in_one_has_none() -> None:
    whole = numbers(acc_at_1=(0.5, 0.5, 0.5), consist=(0.3, 0.3, 0.3), ece=(0.1, 0.1, 0.1))
    part = numbers(acc_at_1=(0.4, 0.3, 0.5), consist=(None, None, None))
    found = differences(whole, part)
    assert found["metric"].to_list() == ["acc_at_1", "consist"]
    assert found.row(0)[3:] == pytest.approx((-0.1, -0.2, 0.0))
    assert found.row(1)[3:] == (None, None, None)


@given(low=st.floats(-0.2, 0.2), width=st.floats(0, 0.2), margin=st.floats(0.001, 0.1))
def test_judged_a_loss_only_where_the_whole_interval_is_beyond(
    low: float, width: float, margin: float
) -> None:
    row = {"metric": "acc_at_1", "difference": low + width / 2, "ci_low": low}
    rows = pl.DataFrame([{**row, "ci_high": low + width}])
    outcome = judged(rows, ["acc_at_1"], margin).outcome
    assert (outcome == "regression") == (low + width < -margin)
    assert (outcome == "improvement") == (low > margin)
    assert (outcome == "no change") == (-margin <= low and low + width <= margin)


def test_judged_metric_without_estimate_is_not_enough_evidence() -> None:
    found = judged(numbers().clear(), ["acc_at_1"], 0.01)
    assert found.outcome == "not enough evidence"
    assert "no estimate" in found.reason

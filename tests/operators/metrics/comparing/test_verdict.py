"""The verdict on two runs, or on two estimates: its rule, and what must never happen."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.comparison import COMPARISON, compare
from factsweep.operators.metrics.comparing.paired import PAIRED
from factsweep.operators.metrics.comparing.verdict import (
    VERDICTS,
    Bar,
    verdict,
    verdicts,
)
from tests.messages import naming

BAR = Bar(noise_floor=0.0, smallest_difference=0.02, alpha=0.05, min_facts=30)
BARS = st.builds(
    Bar,
    noise_floor=st.sampled_from([0.0, 0.03]),
    smallest_difference=st.sampled_from([0.01, 0.05, 0.2]),
    alpha=st.sampled_from([0.01, 0.05]),
    min_facts=st.sampled_from([1, 60, 1000]),
)
SIZE = st.floats(0, 0.4)


def row(
    difference: float | None,
    low: float | None,
    high: float | None,
    *,
    p: float | None = 0.001,
    n_pairs: int = 1000,
    **names: str,
) -> dict[str, Any]:
    values = {"difference": difference, "ci_low": low, "ci_high": high}
    return {
        "metric": "acc_at_1",
        "relation_id": None,
        **values,
        "p_holm": p,
        "n_pairs": n_pairs,
    } | names


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    difference = draw(st.floats(-0.4, 0.4))
    return row(
        difference,
        difference - draw(SIZE),
        difference + draw(SIZE),
        p=draw(st.none() | st.sampled_from([0.001, 0.03, 0.5])),
        n_pairs=draw(st.sampled_from([5, 60, 500, 20_000])),
        metric=draw(st.sampled_from(["acc_at_1", "brier"])),
    )


def table(*given_rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(
        [{**dict.fromkeys(COMPARISON), **each} for each in given_rows], schema=COMPARISON
    )


def outcome(given_row: dict[str, Any], bar: Bar = BAR) -> str:
    return verdict(table(given_row), bar).outcome


@given(one=rows(), bar=BARS)
def test_verdict_any_row_follows_the_rule(one: dict[str, Any], bar: Bar) -> None:
    sign = 1 if one["metric"] == "acc_at_1" else -1
    gain = sign * one["difference"]
    low, high = sorted((sign * one["ci_low"], sign * one["ci_high"]))
    margin = max(bar.noise_floor, bar.smallest_difference)
    significant = one["p_holm"] is None or one["p_holm"] <= bar.alpha
    if gain <= -margin and high < 0 and significant:
        expected = "regression"
    elif gain >= margin and low > 0 and significant:
        expected = "improvement"
    elif abs(gain) < margin and -margin <= low and high <= margin:
        enough = one["n_pairs"] >= bar.min_facts
        expected = "no change" if enough else "not enough evidence"
    else:
        expected = "not enough evidence"
    assert outcome(one, bar) == expected


@given(one=rows(), bar=BARS)
def test_verdict_swapped_runs_swap_regression_and_improvement(
    one: dict[str, Any], bar: Bar
) -> None:
    turned = {
        "difference": -one["difference"],
        "ci_low": -one["ci_high"],
        "ci_high": -one["ci_low"],
    }
    opposite = {"regression": "improvement", "improvement": "regression"}
    there = outcome(one, bar)
    assert outcome(one | turned, bar) == opposite.get(there, there)


@given(
    one=rows(), bar=BARS, kept=st.floats(0, 1), times=st.integers(1, 50), smaller=st.floats(0, 1)
)
def test_verdict_more_data_at_the_same_effect_takes_none_back(
    one: dict[str, Any], bar: Bar, kept: float, times: int, smaller: float
) -> None:
    difference = one["difference"]
    more = {
        "ci_low": difference + kept * (one["ci_low"] - difference),
        "ci_high": difference + kept * (one["ci_high"] - difference),
        "p_holm": one["p_holm"] and one["p_holm"] * smaller,
        "n_pairs": one["n_pairs"] * times,
    }
    before = outcome(one, bar)
    assume(before != "not enough evidence")
    assert outcome(one | more, bar) == before


def test_verdict_facts_that_did_not_change_are_no_change_only_if_they_are_many() -> None:
    still = row(0.0, 0.0, 0.0, p=1.0)
    assert outcome(still | {"n_pairs": 30}) == "no change"
    assert outcome(still | {"n_pairs": 29}) == "not enough evidence"


def test_verdict_one_damaged_relation_outweighs_gains_elsewhere() -> None:
    compared = table(
        row(0.05, 0.03, 0.07),
        row(0.5, 0.3, 0.7, relation_id="P17"),
        row(-0.4, -0.6, -0.2, relation_id="P36"),
    )
    found = verdict(compared, BAR)
    assert found.outcome == "regression"
    assert found.reason == (
        "acc_at_1 in P36 fell by 0.4000 (95 % interval -0.6000 to -0.2000), which exceeds the "
        "0.02 threshold."
    )


def test_verdict_relations_too_small_to_judge_do_not_hide_that_nothing_changed() -> None:
    compared = table(
        row(0.0, -0.01, 0.01, p=1.0), row(0.0, -0.2, 0.2, p=1.0, relation_id="P17", n_pairs=5)
    )
    assert verdict(compared, BAR).outcome == "no change"
    assert verdicts(compared, BAR)["verdict"].to_list() == ["no change", "not enough evidence"]


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (row(-0.1, -0.3, 0.1), "the interval contains 0"),
        (row(-0.1, -0.2, -0.05, p=0.2), "p is 0.2000 after Holm's correction, above 0.05"),
        (row(-0.01, -0.03, 0.01), "reaches beyond the ±0.02"),
        (row(0.0, 0.0, 0.0, n_pairs=20), "20 facts are fewer than min_facts=30"),
        (row(None, None, None), "no value and interval"),
        (row(-0.1, None, None), "no value and interval"),
    ],
)
def test_verdict_not_enough_evidence_says_what_is_missing(one: dict[str, Any], why: str) -> None:
    found = verdict(table(one), BAR)
    assert found.outcome == "not enough evidence"
    assert why in found.reason


def test_verdict_no_shared_prompts_is_not_enough_evidence() -> None:
    found = verdict(table(), BAR)
    assert found == ("not enough evidence", "The runs have no prompt in common.")
    assert verdicts(table(), BAR).schema == VERDICTS


def test_verdict_a_metric_without_a_better_end_is_refused() -> None:
    with pytest.raises(InputError, match=naming("ovconf", "better")):
        verdict(table(row(0.1, 0.0, 0.2, metric="ovconf")), BAR)


@pytest.mark.parametrize("values", [(-0.1, 0.1, 0.05), (0.1, 0.0, 0.05), (0.1, 0.1, 0.0)])
def test_bar_out_of_range_is_refused(values: tuple[float, float, float]) -> None:
    with pytest.raises(InputError):
        Bar(*values, min_facts=30)


def run(n_pairs: int, damaged: int) -> pl.DataFrame:
    """Eight relations; in the first, `damaged` facts that were known under all prompts are not."""
    rng = np.random.default_rng(1)
    before = rng.integers(0, 11, n_pairs) / 10
    before[:damaged] = 1
    after = np.where(np.arange(n_pairs) < damaged, 0, before)
    columns = {
        "metric": ["acc_at_1"] * n_pairs,
        "relation_id": [f"P{8 * i // n_pairs}" for i in range(n_pairs)],
        "pair_id": [str(i) for i in range(n_pairs)],
        "first": before,
        "second": after,
        "denominator": [1.0] * n_pairs,
        "squares": before - after,
        "n_prompts": [10] * n_pairs,
    }
    return compare(pl.DataFrame(columns, schema=PAIRED), seed=1)


def test_verdict_of_runs_a_damaged_relation_none_and_too_few_facts() -> None:
    damaged = verdict(run(400, 50), BAR)
    assert damaged.outcome == "regression"
    assert "in P0" in damaged.reason
    assert verdict(run(400, 0), BAR).outcome == "no change"
    assert verdict(run(20, 1), BAR).outcome == "not enough evidence"
    assert verdict(run(20, 0), BAR).outcome == "not enough evidence"

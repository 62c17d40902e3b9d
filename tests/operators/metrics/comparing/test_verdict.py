"""The verdict on two runs, or on two estimates: its rule, and what must never happen."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.comparison import COMPARISON
from factsweep.operators.metrics.comparing.verdict import (
    VERDICTS,
    VerdictThresholds,
    judge_rows,
    judge_runs,
)
from tests.messages import naming

BAR = VerdictThresholds(
    noise_floor=0.0, smallest_difference=0.02, alpha=0.05, min_facts=30, is_baseline=True
)
PEERS = replace(BAR, is_baseline=False)
BARS = st.builds(
    VerdictThresholds,
    noise_floor=st.sampled_from([0.0, 0.03]),
    smallest_difference=st.sampled_from([0.01, 0.05, 0.2]),
    alpha=st.sampled_from([0.01, 0.05]),
    min_facts=st.sampled_from([1, 60, 1000]),
    is_baseline=st.booleans(),
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


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{**dict.fromkeys(COMPARISON), **row} for row in rows], schema=COMPARISON)


def outcome(row: dict[str, Any], bar: VerdictThresholds = BAR) -> str:
    return judge_runs(table(row), bar).outcome


@given(compared=rows(), bar=BARS)
def test_verdict_any_row_follows_the_rule(compared: dict[str, Any], bar: VerdictThresholds) -> None:
    sign = 1 if compared["metric"] == "acc_at_1" else -1
    gain = sign * compared["difference"]
    low, high = sorted((sign * compared["ci_low"], sign * compared["ci_high"]))
    margin = max(bar.noise_floor, bar.smallest_difference)
    significant = compared["p_holm"] is None or compared["p_holm"] <= bar.alpha
    sides = ("regression", "improvement")
    if not bar.is_baseline:
        sides = ("lower", "higher") if sign > 0 else ("higher", "lower")
    if gain <= -margin and high < 0 and significant:
        expected = sides[0]
    elif gain >= margin and low > 0 and significant:
        expected = sides[1]
    elif abs(gain) < margin and -margin <= low and high <= margin:
        enough, same = compared["n_pairs"] >= bar.min_facts, "no difference"
        same = "no change" if bar.is_baseline else "no difference"
        expected = same if enough else "not enough evidence"
    else:
        expected = "not enough evidence"
    assert outcome(compared, bar) == expected


def test_verdict_of_peers_names_a_side_and_is_the_same_the_other_way_round() -> None:
    lower = row(-0.4, -0.6, -0.2, relation_id="P36")
    compared = table(row(0.05, 0.03, 0.07), row(0.5, 0.3, 0.7, relation_id="P17"), lower)
    judgement = judge_runs(compared, PEERS)
    assert judgement.outcome == "higher"
    for part in ("over all is higher by 0.0500", "in P36 is lower by 0.4000"):
        assert part in judgement.reason
    ends = {"ci_low": -pl.col("ci_high"), "ci_high": -pl.col("ci_low")}
    swapped = compared.with_columns(-pl.col("difference"), **ends)
    assert judge_runs(swapped, PEERS).outcome == "lower"
    relations = compared.drop_nulls("relation_id")
    unsure = pl.concat([table(row(0.05, -0.03, 0.07)), relations])
    assert judge_runs(unsure, PEERS).outcome == "higher and lower"
    assert judge_runs(table(row(0.0, 0.0, 0.0)), PEERS).outcome == "no difference"


def test_verdict_the_main_metric_is_judged_by_its_p_and_others_by_theirs_after_holm() -> None:
    falls = row(-0.1, -0.2, -0.05)
    assert outcome(falls | {"p": 0.04, "p_holm": None}) == "regression"
    assert outcome(falls | {"p": 0.06, "p_holm": None}) == "not enough evidence"
    assert outcome(falls | {"p": 0.04, "p_holm": 0.08}) == "not enough evidence"


def test_verdict_facts_that_did_not_change_are_no_change_only_if_they_are_many() -> None:
    unchanged = row(0.0, 0.0, 0.0, p=1.0)
    assert outcome(unchanged | {"n_pairs": 30}) == "no change"
    assert outcome(unchanged | {"n_pairs": 29}) == "not enough evidence"


def test_verdict_one_damaged_relation_outweighs_gains_elsewhere() -> None:
    compared = table(
        row(0.05, 0.03, 0.07),
        row(0.5, 0.3, 0.7, relation_id="P17"),
        row(-0.4, -0.6, -0.2, relation_id="P36"),
    )
    judgement = judge_runs(compared, BAR)
    assert judgement.outcome == "regression"
    for part in ("acc_at_1 in P36 fell by 0.4000", "-0.6000 to -0.2000", "0.02 threshold"):
        assert part in judgement.reason


def test_verdict_relations_too_small_to_judge_do_not_hide_that_nothing_changed() -> None:
    compared = table(
        row(0.0, -0.01, 0.01, p=1.0), row(0.0, -0.2, 0.2, p=1.0, relation_id="P17", n_pairs=5)
    )
    assert judge_runs(compared, BAR).outcome == "no change"
    assert judge_rows(compared, BAR)["verdict"].to_list() == ["no change", "not enough evidence"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (row(-0.1, -0.3, 0.1), "the interval contains 0"),
        (row(-0.1, -0.2, -0.05, p=0.2), "p is 0.2000 after Holm's correction, above 0.05"),
        (row(-0.01, -0.03, 0.01), "reaches beyond the ±0.02"),
        (row(0.0, 0.0, 0.0, n_pairs=20), "20 facts are fewer than min_facts=30"),
        (row(None, None, None), "no value and interval"),
        (row(-0.1, None, None), "no value and interval"),
    ],
)
def test_verdict_not_enough_evidence_says_what_is_missing(row: dict[str, Any], reason: str) -> None:
    judgement = judge_runs(table(row), BAR)
    assert judgement.outcome == "not enough evidence"
    assert reason in judgement.reason


def test_verdict_no_shared_prompts_is_not_enough_evidence() -> None:
    judgement = judge_runs(table(), BAR)
    assert judgement == ("not enough evidence", "The runs have no prompt in common.")
    assert judge_rows(table(), BAR).schema == VERDICTS


def test_verdict_a_metric_without_a_better_end_is_refused() -> None:
    with pytest.raises(InputError, match=naming("ovconf", "better")):
        judge_runs(table(row(0.1, 0.0, 0.2, metric="ovconf")), BAR)


@pytest.mark.parametrize("values", [(-0.1, 0.1, 0.05), (0.1, 0.0, 0.05), (0.1, 0.1, 0.0)])
def test_bar_out_of_range_is_refused(values: tuple[float, float, float]) -> None:
    with pytest.raises(InputError):
        VerdictThresholds(*values, min_facts=30)

"""Risk and coverage, against written-out orders, lm-polygraph and the laws of a constant."""

import json
from itertools import permutations
from statistics import mean

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.calibration import (
    RANKINGS,
    by_confidence,
    ranked_rounds,
)
from factsweep.operators.metrics.belief.risk_coverage import risk_coverage, risk_rounds
from factsweep.operators.metrics.shared.bootstrap import estimate, weight_blocks
from tests.operators.metrics.belief.record_polygraph import RECORD, sample_sets
from tests.operators.metrics.scalars import RANKED, Tables, auroc


def ranked(rows: pl.DataFrame) -> dict[str, float | None]:
    rounds = ranked_rounds(rows, seed=1, n_rounds=0, n_bins=None)
    return {name: estimate(values).value for name, values in rounds.items()}


@given(data=st.data())
def test_risk_rounds_are_the_metrics_of_written_out_resamples(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    calibration = data.draw(calibration_tables.filter(len))
    ordered = by_confidence(calibration)
    weights = np.concatenate(list(weight_blocks(len(ordered), np.random.default_rng(1), 3)))
    resamples = [ordered[np.repeat(np.arange(len(ordered)), row)] for row in weights]
    for name, values in risk_rounds(ordered, weights)._asdict().items():
        expected = [RANKED[name](rows) for rows in resamples]
        expected = [np.nan if value is None else value for value in expected]
        assert values == pytest.approx(expected, nan_ok=True, abs=1e-12)
    assert ranked(calibration) == ranked(calibration.sample(fraction=1, shuffle=True, seed=2))


@pytest.mark.parametrize("confidences", [(0.5, 0.5, 0.5, 0.2), (0.9, 0.3, 0.3, 0.3)])
def test_aurc_of_equal_confidences_is_the_mean_over_their_orders(
    confidences: tuple[float, ...],
) -> None:
    rows = list(zip(confidences, (True, False, True, False), strict=True))
    orders = (sorted(order, key=lambda row: -row[0]) for order in permutations(rows))
    risks = [
        mean(mean(not right for _, right in order[: k + 1]) for k in range(len(order)))
        for order in orders
    ]
    kinds = {"confidence": pl.Float64, "correct": pl.Boolean}
    table = pl.DataFrame(rows, kinds, orient="row").sort("confidence", descending=True)
    assert risk_rounds(table, np.ones((1, 4), np.int64)).aurc[0] == pytest.approx(mean(risks))


@given(right=st.lists(st.booleans(), min_size=1, max_size=30))
def test_constant_confidence_has_auroc_a_half_and_prr_0(right: list[bool]) -> None:
    ids = [f"p{i}" for i in range(len(right))]
    rows = pl.DataFrame(
        {"relation_id": "r", "pair_id": ids, "prompt_id": ids, "correct": right, "confidence": 0.7}
    )
    is_mixed = len(set(right)) == 2
    assert auroc(rows) == (0.5 if is_mixed else None)
    values = ranked(rows)
    assert values["aurc"] == pytest.approx(1 - mean(right), abs=1e-12)
    assert values["prr"] == (pytest.approx(0, abs=1e-12) if is_mixed else None)


def test_prr_equals_that_of_lm_polygraph() -> None:
    record, sets = json.loads(RECORD.read_text()), sample_sets()
    ids = [f"p{i}" for i in range(len(sets))]
    columns = {"relation_id": "r", "pair_id": ids, "prompt_id": ids}
    right = [sample.correct for sample in sets]
    for kind in ("sequence", "sequence_mean"):
        values = ranked(pl.DataFrame({**columns, "confidence": record[kind], "correct": right}))
        aurc, excess, prr = (values[name] for name in RANKINGS[1:])
        assert aurc is not None
        assert excess is not None
        assert 1 - aurc == pytest.approx(record[f"area {kind}"])
        assert 1 - (aurc - excess) == pytest.approx(record["area of the best"])
        # Its chance is the mean of 1,000 shuffles, ours their expected value.
        assert mean(right) == pytest.approx(record["area of chance"], abs=0.005)
        assert prr == pytest.approx(record[f"prr {kind}"], abs=0.01)


def test_risk_coverage_of_bins_ends_at_the_share_of_wrong_answers() -> None:
    bins = pl.DataFrame(
        {
            "series": ["a"] * 2 + ["b"],
            "bin": [2, 1, 1],
            "n": [1, 3, 2],
            "mean_accuracy": [0.0, 1.0, 0.5],
        }
    )
    rows = risk_coverage(bins).select("series", "coverage", "risk").rows()
    assert rows == [("a", 0.75, 0), ("a", 1, 0.25), ("b", 1, 0.5)]

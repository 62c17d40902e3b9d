"""Bootstrap intervals."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.metrics.belief.acc_at_1 import acc_at_1_terms
from operators.metrics.belief.calibration import auroc, auroc_rounds, by_confidence, ece, ece_rounds
from operators.metrics.belief.coverage import coverage_maximum
from operators.metrics.belief.intervals import (
    bootstrap_auroc,
    bootstrap_coverage_maximum,
    bootstrap_ece,
)
from operators.metrics.estimates.bootstrap import (
    UNDEFINED,
    bootstrap_ratio,
    estimate,
    weight_blocks,
)
from operators.metrics.estimates.terms import TERMS, ratio

Tables = st.SearchStrategy[pl.DataFrame]


def terms(n_pairs: int = 400) -> pl.DataFrame:
    numerators = np.random.default_rng(2).random(n_pairs)
    columns = {
        "relation_id": [f"P{i % 2}" for i in range(n_pairs)],
        "pair_id": [f"t{i:03d}" for i in range(n_pairs)],
        "numerator": numerators,
        "denominator": np.ones(n_pairs),
    }
    return pl.DataFrame(columns)


def test_weight_blocks_every_round_takes_as_many_units_as_there_are() -> None:
    weights = np.concatenate(list(weight_blocks(7, np.random.default_rng(1), 50)))
    assert weights.shape == (51, 7)
    assert (weights.sum(axis=1) == 7).all()
    assert (weights[0] == 1).all()


def test_bootstrap_ratio_mean_of_pairs_has_the_normal_width() -> None:
    _, low, high = bootstrap_ratio(terms(), seed=1, n_rounds=2000).overall
    standard_error = np.std(terms()["numerator"].to_numpy()) / 400**0.5
    assert low is not None
    assert high is not None
    assert high - low == pytest.approx(2 * 1.96 * standard_error, rel=0.1)


@given(data=st.data())
def test_bootstrap_ratio_round_zero_is_the_value(
    data: st.DataObject, answer_tables: Tables
) -> None:
    found = acc_at_1_terms(data.draw(answer_tables))
    value = bootstrap_ratio(found, seed=1, n_rounds=5).overall.value
    assert value == pytest.approx(ratio(found))


@given(data=st.data())
def test_bootstrap_maximum_round_zero_is_the_value(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    value = bootstrap_coverage_maximum(answers, seed=1, n_rounds=5).overall.value
    assert value == pytest.approx(coverage_maximum(answers))


@given(data=st.data())
def test_bootstrap_calibration_round_zero_is_the_value(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    calibration = data.draw(calibration_tables)
    assert bootstrap_ece(calibration, seed=1, n_rounds=5).value == pytest.approx(ece(calibration))
    assert bootstrap_auroc(calibration, seed=1, n_rounds=5).value == pytest.approx(
        auroc(calibration)
    )


@given(data=st.data())
def test_calibration_rounds_equal_metrics_of_written_out_resamples(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    ordered = by_confidence(data.draw(calibration_tables.filter(len)))
    weights = np.concatenate(list(weight_blocks(len(ordered), np.random.default_rng(1), 3)))
    resamples = [ordered[np.repeat(np.arange(len(ordered)), row)] for row in weights]
    assert ece_rounds(ordered, weights, 4) == pytest.approx([ece(rows, 4) for rows in resamples])
    defined = [np.nan if auroc(rows) is None else auroc(rows) for rows in resamples]
    assert auroc_rounds(ordered, weights) == pytest.approx(defined, nan_ok=True)


def test_bootstrap_relation_alone_gives_the_same_interval() -> None:
    everything = bootstrap_ratio(terms(), seed=1, n_rounds=50)
    alone = bootstrap_ratio(terms().filter(relation_id="P1"), seed=1, n_rounds=50)
    assert alone.overall == everything.by_relation["P1"]


def test_bootstrap_shuffled_rows_change_nothing() -> None:
    shuffled = terms().sample(fraction=1, shuffle=True, seed=4)
    assert bootstrap_ratio(shuffled, seed=1) == bootstrap_ratio(terms(), seed=1)


def test_bootstrap_another_seed_moves_the_interval() -> None:
    first, other = (bootstrap_ratio(terms(), seed=seed).overall for seed in (1, 2))
    assert first.value == other.value
    assert first.ci_low != other.ci_low


def test_estimate_undefined_rounds_are_left_out() -> None:
    assert estimate(np.array([0.5, np.nan, 0.25, 0.25])) == (0.5, 0.25, 0.25)
    assert estimate(np.array([0.5, np.nan])) == (0.5, None, None)
    assert estimate(np.array([np.nan, 1.0])) == UNDEFINED


def test_bootstrap_no_pairs_is_undefined(
    no_answers: pl.DataFrame, no_calibration: pl.DataFrame
) -> None:
    assert bootstrap_ratio(pl.DataFrame(schema=TERMS), seed=1) == (UNDEFINED, {})
    assert bootstrap_coverage_maximum(no_answers, seed=1) == (UNDEFINED, {})
    assert bootstrap_ece(no_calibration, seed=1) == UNDEFINED
    assert bootstrap_auroc(no_calibration, seed=1) == UNDEFINED

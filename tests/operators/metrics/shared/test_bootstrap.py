"""Bootstrap intervals."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from factsweep.operators.metrics.shared.bootstrap import (
    UNDEFINED,
    bootstrap_ratio,
    estimate,
    resampled_sums,
    weight_blocks,
)
from factsweep.operators.metrics.shared.rows import TERMS


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


@pytest.mark.parametrize("n", [1, 2, 7, 10, 49])
def test_resampled_sums_of_ones_are_the_number_of_pairs(n: int) -> None:
    sums = resampled_sums(np.ones((n, 1)), seed=1, relation="P1", n_rounds=50)
    assert sums.ravel().tolist() == [n] * 51


def test_resampled_sums_vary_as_the_standard_error_says() -> None:
    values = np.random.default_rng(2).random((6, 1))
    means = resampled_sums(values, seed=1, relation="P1", n_rounds=40_000)[1:] / 6
    assert means.std() == pytest.approx(values.std(ddof=1) / 6**0.5, rel=0.02)
    assert means.mean() == pytest.approx(values.mean(), rel=0.02)


@pytest.mark.parametrize("degrees", [4, 9, 200])
def test_estimate_of_normal_rounds_is_as_wide_as_students(degrees: int) -> None:
    rounds = np.random.default_rng(1).standard_normal(400_000)
    _, low, high = estimate(np.concatenate([[0.0], rounds]), degrees)
    assert high == pytest.approx(stats.t.ppf(0.975, degrees), rel=0.02)
    assert low == pytest.approx(-stats.t.ppf(0.975, degrees), rel=0.02)


@pytest.mark.slow
def test_bootstrap_intervals_of_ten_pairs_per_relation_cover_the_known_mean() -> None:
    true_mean = 0.4 / 1.2
    shares = np.random.default_rng(5).beta(0.4, 0.8, (600, 80))
    table = terms(80).with_columns(relation_id=pl.int_range(80).floordiv(10).cast(pl.String))
    inside = 0
    for number, numerators in enumerate(shares):
        rows = table.with_columns(numerator=pl.Series(numerators))
        _, low, high = bootstrap_ratio(rows, seed=number, n_rounds=400).overall
        assert low is not None
        assert high is not None
        inside += low <= true_mean <= high
    assert inside / len(shares) >= 0.93


def test_estimate_undefined_rounds_are_left_out() -> None:
    assert estimate(np.array([0.5, np.nan, 0.25, 0.25])) == (0.5, 0.25, 0.25)
    assert estimate(np.array([0.5, np.nan])) == (0.5, None, None)
    assert estimate(np.array([np.nan, 1.0])) == UNDEFINED


def test_bootstrap_depends_on_seed_and_relation_and_not_on_the_order_of_rows() -> None:
    everything = bootstrap_ratio(terms(), seed=1, n_rounds=50)
    one_relation = bootstrap_ratio(terms().filter(relation_id="P1"), seed=1, n_rounds=50)
    assert one_relation.overall == everything.by_relation["P1"]
    shuffled = terms().sample(fraction=1, shuffle=True, seed=4)
    assert bootstrap_ratio(shuffled, seed=1, n_rounds=50) == everything
    other = bootstrap_ratio(terms(), seed=2, n_rounds=50).overall
    assert everything.overall.value == other.value
    assert everything.overall.ci_low != other.ci_low
    assert bootstrap_ratio(pl.DataFrame(schema=TERMS), seed=1) == (UNDEFINED, {})

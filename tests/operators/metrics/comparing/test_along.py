"""Runs side by side: values, bands that hold for all runs at once, ranks that are certain."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.along import along

LABELS = ["a", "b", "c", "d"]
RELATIONS = 6


def terms(right: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> pl.DataFrame:
    """The terms of runs (rows) over facts (columns)."""
    n = right.shape[1]
    relation = [f"P{i % RELATIONS}" for i in range(n)]
    return pl.concat(
        pl.DataFrame(
            {
                "label": [label] * n,
                "relation_id": relation,
                "pair_id": [str(i) for i in range(n)],
                "numerator": row,
                "denominator": [1.0] * n,
            }
        )
        for label, row in zip(LABELS, right, strict=False)
    )


def drawn(rng: np.random.Generator, shares: list[float], n_facts: int = 240) -> pl.DataFrame:
    """Facts as hard for one run as for another: right where a run's share exceeds its hardness."""
    hardness = rng.uniform(size=n_facts)
    noise = rng.uniform(-0.2, 0.2, size=(len(shares), hardness.size))
    return terms((np.array(shares)[:, None] > hardness + noise).astype(float))


@pytest.mark.slow
def test_band_holds_for_all_runs_at_once_and_ranks_are_rarely_wrong() -> None:
    rng = np.random.default_rng(7)
    shares = [0.3, 0.5, 0.5, 0.8]
    truth = [np.mean(s > rng.uniform(size=10**6) + rng.uniform(-0.2, 0.2, 10**6)) for s in shares]
    inside, ranked = 0, 0
    n_draws = 200
    for draw in range(n_draws):
        found = along(drawn(rng, shares), LABELS, reference="a", seed=draw, n_rounds=200)
        low, high = found["band_low"].to_numpy(), found["band_high"].to_numpy()
        inside += bool(((low <= truth) & (truth <= high)).all())
        best, worst = found["rank_low"].to_list(), found["rank_high"].to_list()
        ranked += best[0] == worst[0] == 4 and best[3] == worst[3] == 1 and best[1] == 2
        pointwise = found["ci_high"] - found["ci_low"]
        assert ((found["band_high"] - found["band_low"]) > 0.95 * pointwise).all()
    assert inside >= 0.92 * n_draws  # 95 % less two standard errors
    assert ranked >= 0.93 * n_draws  # b and c are alike, and told apart in one of twenty


@pytest.mark.slow
def test_band_of_a_small_study_holds_where_runs_know_next_to_nothing() -> None:
    rng = np.random.default_rng(8)
    shares = [-0.15, -0.1, 0.5, 0.8]
    truth = [np.mean(s > rng.uniform(size=10**6) + rng.uniform(-0.2, 0.2, 10**6)) for s in shares]
    assert truth[0] < 0.01
    inside, n_draws = 0, 200
    for draw in range(n_draws):
        found = along(drawn(rng, shares, 30), LABELS, reference="a", seed=draw, n_rounds=200)
        low, high = found["band_low"].to_numpy(), found["band_high"].to_numpy()
        inside += bool(((low <= truth) & (truth <= high)).all())
    assert inside >= 0.92 * n_draws


def test_values_differences_and_shared_facts() -> None:
    right = np.array([[0.0, 0.5, 1.0, 1.0], [1.0, 0.5, 1.0, 1.0]])
    rows = terms(right).filter(~((pl.col("label") == "b") & (pl.col("pair_id") == "3")))
    found = along(rows, ["a", "b"], reference="a", seed=0, n_rounds=50)
    assert found["value"].to_list() == [0.5, pytest.approx(2.5 / 3)]  # of the three shared facts
    assert found["difference"].to_list() == [0.0, pytest.approx(1 / 3)]
    assert found["n_pairs"].to_list() == [3, 3]
    assert found["p_holm"].to_list()[0] is None
    with pytest.raises(InputError, match="no fact in common"):
        along(rows.filter(label="a"), ["a", "b"], reference="a", seed=0, n_rounds=5)


def test_one_run_alone_and_runs_that_never_vary() -> None:
    alike = along(terms(np.ones((2, 12))), ["a", "b"], reference="a", seed=0, n_rounds=20)
    assert alike["band_high"].to_list() == [1.0, 1.0]
    # The exact interval of n facts that are all right begins at .025^(1/n).
    n = 12 * (norm.isf(0.025) / student.isf(0.025, 12 - RELATIONS)) ** 2
    assert alike["band_low"].to_list() == [pytest.approx(0.025 ** (1 / n))] * 2
    assert alike.select("rank_low", "rank_high").rows() == [(1, 2), (1, 2)]
    one = along(terms(np.ones((1, 12))), ["a"], reference="a", seed=0, n_rounds=20)
    assert one.select("rank_low", "rank_high").rows() == [(1, 1)]

"""Runs side by side: values, bands that hold for all at once, certain ranks, the life of facts."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm
from scipy.stats import t as student
from statsmodels.stats.proportion import proportion_confint

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.curve import band, classify_lives, compare_along

LABELS = ["a", "b", "c", "d", "e", "f"]
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
        table = compare_along(drawn(rng, shares), LABELS[:4], seed=draw, n_rounds=200)
        low, high = table["band_low"].to_numpy(), table["band_high"].to_numpy()
        inside += bool(((low <= truth) & (truth <= high)).all())
        best, worst = table["rank_low"].to_list(), table["rank_high"].to_list()
        ranked += best[0] == worst[0] == 4 and best[3] == worst[3] == 1 and best[1] == 2
        pointwise = table["ci_high"] - table["ci_low"]
        assert ((table["band_high"] - table["band_low"]) > 0.95 * pointwise).all()
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
        table = compare_along(drawn(rng, shares, 30), LABELS[:4], seed=draw, n_rounds=200)
        low, high = table["band_low"].to_numpy(), table["band_high"].to_numpy()
        inside += bool(((low <= truth) & (truth <= high)).all())
    assert inside >= 0.92 * n_draws


def test_values_are_of_shared_facts() -> None:
    right = np.array([[0.0, 0.5, 1.0, 1.0], [1.0, 0.5, 1.0, 1.0]])
    rows = terms(right).filter(~((pl.col("label") == "b") & (pl.col("pair_id") == "3")))
    table = compare_along(rows, ["a", "b"], seed=0, n_rounds=50)
    assert table["value"].to_list() == [0.5, pytest.approx(2.5 / 3)]  # of the three shared facts
    assert table["n_pairs"].to_list() == [3, 3]
    with pytest.raises(InputError, match="no fact in common"):
        compare_along(rows.filter(label="a"), ["a", "b"], seed=0, n_rounds=5)


def test_band_is_the_exact_interval_of_as_many_facts_as_the_design_effect_leaves() -> None:
    rounds, n = np.array([[0.5], [0.4], [0.6]]), 50  # a variance of .01
    n_effective = n * (0.25 / n + 2 / n**2) / (0.01 + 2 / n**2)
    (low,), (high,) = band(rounds, 10**9, n)
    expected = proportion_confint(n_effective / 2, n_effective, method="beta")
    assert (low, high) == pytest.approx(expected, abs=1e-6)


def test_one_run_alone_and_runs_that_never_vary() -> None:
    alike = compare_along(terms(np.ones((2, 12))), ["a", "b"], seed=0, n_rounds=20)
    assert alike["band_high"].to_list() == [1.0, 1.0]
    # The exact interval of n facts that are all right begins at .025^(1/n).
    n = 12 * (norm.isf(0.025) / student.isf(0.025, 12 - RELATIONS)) ** 2
    assert alike["band_low"].to_list() == [pytest.approx(0.025 ** (1 / n))] * 2
    assert alike.select("rank_low", "rank_high").rows() == [(1, 2), (1, 2)]
    single = compare_along(terms(np.ones((1, 12))), ["a"], seed=0, n_rounds=20)
    assert single.select("rank_low", "rank_high").rows() == [(1, 1)]


# By the curve of a fact: its life, where it is learned, where forgotten, and where it is known.
CASES: dict[tuple[float | None, ...], tuple[str, str | None, str | None, str]] = {
    (1, 1, 1, 1): ("always known", "a", None, "abcd"),
    (1, 1, 0, 1): ("always known", "a", None, "abcd"),  # a single dip
    (1, 1, 1, 0): ("always known", "a", None, "abcd"),  # no second point confirms it
    (0, 0, 0, 0): ("never known", None, None, ""),
    (0, 1, 0, 1): ("never known", None, None, ""),
    (0, 0, 0, 1): ("never known", None, None, ""),
    (0, 1, 1, 0): ("learned", "b", None, "bcd"),
    (1, 0, 1, 1): ("learned", "c", None, "cd"),
    (1, 1, 0, 0): ("forgotten", "a", "c", "ab"),
    (0, 1, 1, 0, 0, 1): ("known for a while", "b", "d", "bc"),
    (1, 1, 0, 0, 1, 1): ("learned anew", "a", "c", "abef"),
    (0.5, 0.5, 0.5, 0.5): ("never known", None, None, ""),
    (1, 1, 0.5, 0.5): ("always known", "a", None, "abcd"),
    (0.51, 0.51, 0.49, 0.49): ("forgotten", "a", "c", "ab"),
    (0, 1, 0.5, 1): ("never known", None, None, ""),
    (1, 1): ("always known", "a", None, "ab"),
    (0, 1): ("never known", None, None, ""),
}


def rows(*curves: tuple[float | None, ...]) -> pl.DataFrame:
    """The shares of facts, one curve per fact; null: no row."""
    shares = [
        (label, "P1", f"t{number}", share)
        for number, curve in enumerate(curves)
        for label, share in zip(LABELS, curve, strict=False)
        if share is not None
    ]
    schema = {"label": pl.String, "relation_id": pl.String, "pair_id": pl.String}
    return pl.DataFrame(shares, schema | {"share": pl.Float64}, orient="row")


def test_life_of_a_fact_needs_two_points_in_a_row(subtests: pytest.Subtests) -> None:
    for curve, (*expected, known_at) in CASES.items():
        with subtests.test(str(curve)):
            labels = LABELS[: len(curve)]
            (life,) = classify_lives(rows(curve), labels).iter_rows(named=True)
            assert [life[name] for name in ("life", "learned_at", "forgotten_at")] == expected
            assert life["is_known"] == [label in known_at for label in labels]
            assert life["shares"] == list(curve)
    (life,) = classify_lives(rows((0.7, 0.7)), LABELS[:2], known_share=0.8)["life"]
    assert life == "never known"


def test_life_leaves_out_facts_that_a_point_lacks_and_says_nothing_of_one_point() -> None:
    missing = rows((1, 1, 1), (1, None, 1), (1, 1, None)).with_columns(
        share=pl.when(pl.col("pair_id") == "t3").then(None).otherwise("share")
    )
    assert classify_lives(missing, LABELS[:3])["pair_id"].to_list() == ["t0"]
    null = rows((1, 1)).with_columns(share=pl.lit(None, pl.Float64))
    assert classify_lives(null, LABELS[:2]).is_empty()
    for labels in ([], ["a"]):
        assert classify_lives(rows((1,)), labels).is_empty()

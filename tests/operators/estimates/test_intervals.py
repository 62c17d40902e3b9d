"""Looking often, and bands along a curve: published bounds, and coverage wherever one stops."""

import numpy as np
import polars as pl
import pytest
from _simulated_control import Known, estimated, later
from _simulation import Sizes, made_up, truth

from factsweep.operators.estimates.intervals import (
    Z,
    add_bands,
    bounds,
    look,
    next_share,
    spent_alpha,
)
from factsweep.operators.estimates.means import estimate_mean


def test_bounds_of_five_looks_are_those_of_lan_and_demets() -> None:
    times = np.arange(1, 6) / 5
    # As ldbounds and gsDesign print them for two sides of 5 % and O'Brien and Fleming's type.
    published = [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]
    assert bounds(times, spent_alpha(times)) == pytest.approx(published, abs=0.002)


def test_bound_of_a_single_look_is_that_of_a_95_percent_interval() -> None:
    assert bounds(np.array([7.0]), np.array([0.05])) == pytest.approx([Z])
    assert look([1e-6], 0.1).bound == pytest.approx(Z)


def test_look_without_news_spends_nothing() -> None:
    assert look([0.0004, 0.0004], 0.01).bound == np.inf


@pytest.mark.slow
def test_intervals_of_all_looks_cover_at_once_while_plain_ones_do_not() -> None:
    """Whoever stops when the interval is wrong finds one in 5 % of the runs, and no more."""
    rng = np.random.default_rng(1)
    variances = np.array([1.0, 0.7, 0.45, 0.3, 0.2, 0.1]) * 1e-4
    half_width = 2.1 * np.sqrt(variances[-1])
    look_bounds = [look(variances[: k + 1], half_width).bound for k in range(len(variances))]
    information = 1 / variances
    steps = np.sqrt(np.diff(information, prepend=0))
    z = np.cumsum(rng.standard_normal((20_000, len(steps))) * steps, 1) / np.sqrt(information)
    wrong, plain = ((np.abs(z) > bound).any(1).mean() for bound in (np.array(look_bounds), Z))
    assert wrong == pytest.approx(0.05, abs=0.006)
    assert plain > 0.1


def test_look_foresees_the_budget_that_is_enough() -> None:
    shares, variance = [0.01], 0.25 / 5000
    while (last := look([variance * _left(s) for s in shares], 0.003)).half_width > 0.003:
        shares.append(next_share(shares[-1], variance * _left(shares[-1]), 0.003))
    assert len(shares) <= 4
    assert last.half_width > 0.0015
    assert last.bound < 2.1
    assert next_share(0.01, 1e9, 1e-9) == pytest.approx(0.04)
    assert next_share(0.72, 1.0, 0.1) == 1.0


def _left(share: float) -> float:
    return (1 / share - 1) / 99


@pytest.mark.slow
def test_interval_at_the_stop_covers_the_full_run() -> None:
    data = made_up(n_relations=10, n_facts=30, n_templates=12, most_names=2, seed=2)
    true_value, covered, stops = truth(data)["acc_at_1"], [], []
    for seed in range(100):
        share, variances = 0.05, list[float]()
        while True:
            sample, answers = data.sampled(share, seed)
            mean = estimate_mean(sample, (answers == 0).astype(np.float64), np.ones(sample.n_facts))
            assert mean.variance is not None
            variances.append(mean.variance)
            last = look(variances, 0.02)
            if last.half_width <= 0.02:
                break
            share = next_share(share, mean.variance, 0.02)
        covered.append(abs(mean.value - true_value) <= last.half_width + 1e-12)
        stops.append(share)
    assert np.mean(covered) >= 0.9
    assert 0.05 < np.mean(stops) < 0.5
    assert len(set(stops)) > 1


SIZES = Sizes(n_relations=3, n_facts=60, n_templates=12, most_names=2)
N_DRAWS = 200


@pytest.mark.slow
def test_band_of_estimates_holds_for_the_whole_curve() -> None:
    last = made_up(**SIZES._asdict(), seed=2)
    steps = [later(last, share, seed=i) for i, share in enumerate(np.linspace(0.95, 0.08, 11))]
    values, control = np.array([truth(item)["acc_at_1"] for item in steps]), Known(last)
    inside, each_inside = 0, 0
    for draw in range(N_DRAWS):
        estimates = [estimated(step, control, 0.05, draw).estimate for step in steps]
        rows = [("a", *item[:3], 0.05) for item in estimates]
        columns = ["setting", "value", "ci_low", "ci_high", "estimated"]
        points = add_bands(pl.DataFrame(rows, columns, orient="row"))
        low, high, alone_low, alone_high = points.select(
            "band_low", "band_high", "ci_low", "ci_high"
        ).to_numpy().T  # fmt: skip
        inside += bool(((low <= values) & (values <= high)).all())
        each_inside += bool(((alone_low <= values) & (values <= alone_high)).all())
    assert inside >= 0.91 * N_DRAWS  # 95 % less two and a half standard errors
    assert each_inside < 0.85 * N_DRAWS  # eleven intervals of 95 % do not hold together


def test_band_is_of_each_setting_and_known_where_all_was_asked() -> None:
    rows = [
        ("a", 0.5, 0.4, 0.6, 0.01),
        ("a", 0.5, 0.4, 0.6, 0.01),
        ("a", 0.9, 0.8, 0.95, None),
        ("b", 0.02, 0.01, 0.5, 0.01),
        ("b", 0.3, None, None, 0.01),
    ]
    columns = ["setting", "value", "ci_low", "ci_high", "estimated"]
    bands = add_bands(pl.DataFrame(rows, columns, orient="row"))["band_low", "band_high"].rows()
    assert bands[0] == bands[1] == (pytest.approx(0.386, abs=1e-3), pytest.approx(0.614, abs=1e-3))
    assert bands[2] == (0.9, 0.9)
    assert bands[3] == (pytest.approx(0.01), pytest.approx(0.5))
    assert bands[4] == (None, None)

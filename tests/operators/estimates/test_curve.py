"""Estimates along a curve: the band holds for all of them at once."""

import numpy as np
import polars as pl
import pytest
from _simulated_control import Known, estimated, later
from _simulation import Made, Sizes, made_up

from factsweep.operators.estimates.looks import banded

SIZES = Sizes(n_relations=3, n_facts=60, n_templates=12, most_names=2)
N_DRAWS = 200


def accuracy(made: Made) -> float:
    means = [float(each.mean()) for each in made.accuracies]
    return float(np.average(means, weights=[len(names) for names in made.n_names_of]))


@pytest.mark.slow
def test_band_of_estimates_holds_for_the_whole_curve() -> None:
    last = made_up(**SIZES._asdict(), seed=2)
    steps = [later(last, share, seed=i) for i, share in enumerate(np.linspace(0.95, 0.08, 11))]
    truth, known = np.array([*map(accuracy, steps)]), Known(last)
    inside, each_inside = 0, 0
    for draw in range(N_DRAWS):
        found = [estimated(step, known, 0.05, draw).found for step in steps]
        rows = [("a", *each[:3], 0.05) for each in found]
        columns = ["setting", "value", "ci_low", "ci_high", "estimated"]
        points = banded(pl.DataFrame(rows, columns, orient="row"))
        low, high, alone_low, alone_high = points.select(
            "band_low", "band_high", "ci_low", "ci_high"
        ).to_numpy().T  # fmt: skip
        inside += bool(((low <= truth) & (truth <= high)).all())
        each_inside += bool(((alone_low <= truth) & (truth <= alone_high)).all())
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
    found = banded(pl.DataFrame(rows, columns, orient="row"))["band_low", "band_high"].rows()
    assert found[0] == found[1] == (pytest.approx(0.386, abs=1e-3), pytest.approx(0.614, abs=1e-3))
    assert found[2] == (0.9, 0.9)
    assert found[3] == (pytest.approx(0.01), pytest.approx(0.5))
    assert found[4] == (None, None)

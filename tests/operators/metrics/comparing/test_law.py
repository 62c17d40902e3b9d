"""Laws of a curve: planted ones are found with their error, and others are not."""

import numpy as np
import polars as pl
import pytest

from factsweep.operators.metrics.comparing.law import HALF_LIFE, POWER, laws


def planted(values: list[float], n_facts: int, seed: int) -> pl.DataFrame:
    """Facts that are known where their own luck is below the value: runs err together."""
    luck = np.random.default_rng(seed).random(n_facts)
    rows = [
        (str(place), "P1", f"t{fact}", float(each < value), 1.0)
        for place, value in enumerate(values)
        for fact, each in enumerate(luck)
    ]
    names = ["label", "relation_id", "pair_id", "numerator", "denominator"]
    return pl.DataFrame(rows, names, orient="row")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "true", "curve"),
    [
        (POWER, 0.5, lambda at: 1 - 0.9 * at**-0.5),
        (HALF_LIFE, 3.0, lambda at: 0.9 * 2 ** (-at / 3)),
    ],
)
def test_planted_law_is_found_and_its_interval_holds(law: str, true: float, curve: object) -> None:
    at = {str(place): float(place + 1) for place in range(6)}
    values = [curve(each) for each in at.values()]  # type: ignore[operator]
    found = [laws(planted(values, 800, seed), at).filter(law=law) for seed in range(200)]
    rows = pl.concat(found)
    assert rows.height > 180  # a fit is refused in one of twenty, at most
    covered = rows.select((pl.col("ci_low") <= true) & (true <= pl.col("ci_high"))).to_series()
    assert 0.9 < covered.mean() < 0.99
    assert rows["value"].mean() == pytest.approx(true, rel=0.05)


def test_curves_of_no_law_have_none(subtests: pytest.Subtests) -> None:
    at = {str(place): float(place + 1) for place in range(6)}
    for why, values in {
        "a step": [0.1, 0.1, 0.1, 0.8, 0.8, 0.8],
        "flat": [0.5] * 6,
        "all known": [0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        "few runs": [0.1, 0.4, 0.5],
    }.items():
        with subtests.test(why):
            assert laws(planted(values, 800, 1), at).is_empty()

"""Rows of the metrics table: terms, and several seeds as one row."""

from statistics import fmean, stdev

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.shared.bootstrap import UNDEFINED, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import (
    TERMS,
    mean_over_seeds,
    over_seeds,
    pair_terms,
)
from factsweep.operators.schemas import empty

VALUES = st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=5)


def measured(value: float | None, n: int = 8) -> pl.DataFrame:
    row = {"model": "m", "benchmark": "b", "setting": "s", "metric": "acc_at_1", "value": value}
    intervals = {"ci_low": 0.0, "ci_high": 1.0, "n": n, "n_failed": 9 - n}
    return pl.DataFrame([row | intervals], schema=empty("metrics").schema)


@given(values=VALUES)
def test_over_seeds_is_mean_and_standard_deviation_of_those_that_are_defined(
    values: list[float | None],
) -> None:
    summary = over_seeds([measured(value, n) for n, value in enumerate(values, 1)])
    (row,) = summary.to_dicts()
    defined = [value for value in values if value is not None]
    assert row["value"] == (pytest.approx(fmean(defined)) if defined else None)
    assert row["sd"] == (pytest.approx(stdev(defined), abs=1e-12) if len(defined) > 1 else None)
    assert (row["n_seeds"], row["n_asked"]) == (len(defined), len(values))
    assert (row["ci_low"] is None) == (len(values) > 1)
    assert (row["n"], row["n_failed"]) == (1, 8)


def test_over_seeds_rows_of_other_places_stay_apart_and_in_order() -> None:
    other = measured(0.5).with_columns(slice=pl.lit("relation=P36"))
    seeds = [pl.concat([measured(value), other]) for value in (0.0, 1.0)]
    assert over_seeds(seeds).select("slice", "value").rows() == [(None, 0.5), ("relation=P36", 0.5)]


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_mean_over_seeds_by_weight_is_the_mean_of_everything(counts: list[int]) -> None:
    shares = [None if n == 0 else place / 4 for place, n in enumerate(counts)]
    tables = [
        pl.DataFrame(
            {"bin": [0], "n": [n], "share": [share]}, schema_overrides={"share": pl.Float64}
        )
        for n, share in zip(counts, shares, strict=True)
    ]
    (row,) = mean_over_seeds(tables, weight="n").to_dicts()
    everything = [share for n, share in zip(counts, shares, strict=True) for _ in range(n)]
    assert row["n"] == sum(counts)
    expected = pytest.approx(fmean(everything)) if everything else None  # type: ignore[type-var]
    assert row["share"] == expected


def test_mean_over_seeds_without_a_weight_names_rows_by_what_is_no_number() -> None:
    tables = [
        pl.DataFrame({"sample": [None, "head"], "n": [1, 1], "min": [minimum, 1.0]})
        for minimum in (0.0, 0.5)
    ]
    assert mean_over_seeds(tables).rows() == [(None, 1, 0.25), ("head", 1, 1.0)]


def test_ratio_of_nothing_is_none_and_integer_ids_become_sorted_text() -> None:
    zero = pl.DataFrame([("r", "a", 0.0, 0.0)], TERMS, orient="row")
    for nothing in (zero, TERMS.to_frame()):
        assert bootstrap_ratio(nothing, seed=0, n_rounds=2).overall == UNDEFINED
    hits = pl.DataFrame({"relation_id": [2, 1], "pair_id": [7, 8], "hit": [1, 0]})
    terms = pair_terms(hits, pl.sum("hit"), pl.len())
    assert terms.schema == TERMS
    assert terms["pair_id"].to_list() == ["8", "7"]

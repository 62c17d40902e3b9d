"""Means over relations, and their intervals."""

from statistics import mean

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.kamel.macro import harmonic_mean, macro
from factsweep.operators.metrics.shared.bootstrap import UNDEFINED, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import pair_terms

SHARES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def scores(values: list[tuple[int, float, float]]) -> pl.DataFrame:
    rows = [(f"P{relation}", f"t{i:03d}", p, r) for i, (relation, p, r) in enumerate(values)]
    columns = ["relation_id", "pair_id", "precision", "recall"]
    return pl.DataFrame(rows, schema=columns, orient="row")


@given(st.lists(st.tuples(st.integers(0, 3), SHARES, SHARES), min_size=1, max_size=20))
def test_macro_overall_f1_is_the_harmonic_mean_of_overall_means(
    values: list[tuple[int, float, float]],
) -> None:
    found = macro(scores(values), seed=1, n_rounds=3)
    p, r = found.precision.overall.value, found.recall.overall.value
    assert p == pytest.approx(mean(e.value or 0 for e in found.precision.by_relation.values()))
    assert p is not None
    assert r is not None
    assert found.f1.overall.value == pytest.approx(2 * p * r / (p + r) if p + r else 0)


def test_macro_relation_of_many_queries_weighs_like_any_other() -> None:
    found = macro(scores([(0, 1.0, 1.0), *[(1, 0.0, 0.0)] * 9]), seed=1, n_rounds=3)
    assert found.f1.overall.value == 0.5


def test_macro_relation_has_the_interval_of_the_other_metrics() -> None:
    table = scores([(i % 2, float(i % 3 == 0), 0.0) for i in range(60)])
    terms = pair_terms(table, pl.mean("precision"), pl.lit(1.0))
    expected = bootstrap_ratio(terms, seed=1, n_rounds=50).by_relation
    found = macro(table, seed=1, n_rounds=50).precision.by_relation
    assert [found[r] for r in found] == [pytest.approx(expected[r]) for r in found]


def test_macro_interval_of_means_has_the_normal_width() -> None:
    table = scores([(i % 4, float(i % 3 == 0), 0.0) for i in range(400)])
    _, low, high = macro(table, seed=1, n_rounds=2000).precision.overall
    assert low is not None
    assert high is not None
    assert high - low == pytest.approx(2 * 1.96 * (2 / 9 / 400) ** 0.5, rel=0.1)


def test_macro_no_queries_is_undefined() -> None:
    found = macro(scores([]), seed=1)
    assert found.f1.overall == UNDEFINED
    assert found.f1.by_relation == {}


def test_harmonic_mean_of_nothing_is_nothing() -> None:
    assert harmonic_mean(np.array([0.0, 1.0]), np.array([0.0, 0.5])).tolist() == [0, 2 / 3]

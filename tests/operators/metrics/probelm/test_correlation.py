"""Correlations between prompt types and metrics: SciPy's, over the right couples."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr

from factsweep.operators.metrics.probelm import CORRELATIONS, correlations

NAMES = ("statement", "question")


def table(values: dict[tuple[str, str, str], float | None]) -> pl.DataFrame:
    rows = [(*key, value, None) for key, value in values.items()]
    schema = ["model", "setting", "metric", "value", "ci_low"]
    return pl.DataFrame(rows, schema=schema, orient="row", schema_overrides={"value": pl.Float64})


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=3, max_size=8))
def test_correlations_are_those_of_scipy(pairs: list[tuple[int, int]]) -> None:
    values = {
        (f"m{i}", setting, "mrr"): float(value)
        for i, each in enumerate(pairs)
        for setting, value in zip(NAMES, each, strict=True)
    }
    found = correlations(table(values), "setting", NAMES)
    assert found.schema == CORRELATIONS
    first, second = (list(column) for column in zip(*pairs, strict=True))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found["pearson"].item() is None
    else:
        assert found["pearson"].item() == pytest.approx(pearsonr(first, second).statistic)


def test_correlations_values_meet_those_of_the_same_model_and_metric() -> None:
    statement = {("a", "statement", "mrr"): 1, ("a", "statement", "ndcg"): 2}
    other = {("a", "question", "ndcg"): 5, ("a", "question", "mrr"): 4, ("b", "question", "mrr"): 9}
    found = correlations(table({**statement, **other}), "setting", NAMES)
    assert found.row(0) == ("statement", "question", pytest.approx(1), 2)


def test_correlations_undefined_is_null() -> None:
    values = {("a", "statement", "mrr"): None, ("a", "question", "mrr"): 1.0}
    assert correlations(table(values), "setting", NAMES).row(0)[2:] == (None, 0)
    assert correlations(table(values), "metric", ("mrr",)).is_empty()

"""Errors in years."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.kamel import DATE
from factsweep.operators.metrics.kamel.year_error import (
    weighted_medians,
    year,
    year_error,
    year_errors,
)
from factsweep.operators.metrics.shared.bootstrap import UNDEFINED


def one_year(text: str) -> int | None:
    found: int | None = pl.DataFrame({"text": [text]}).select(year(pl.col("text"))).item()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" 1949%", 1949),
        ("October 17, 1972", 1972),
        ("3rd of May 988", 988),
        ("1914–1918", 1914),
        ("1949; 1950", 1949),
        ("1,949", 1949),
        ("79", 79),
        ("AD 79", 79),
        ("44 BC", -44),
        ("-44", -44),
        ("490 bce", -490),
        ("3.", 3),
        ("AD 79.", 79),
        ("79 CE", 79),
        ("44 B.C.", -44),
        ("K-1", None),  # a product, or a class
        ("No. 7", None),
        ("; 1949", 1949),  # an empty answer is none
        (" ;; 1949%", 1949),
        ("%; 1949", None),
        ("16 May", None),
        ("May 16", None),
        ("123456", None),
        ("unknown; 1949", None),
        ("unknown\n1949", None),
        ("", None),
    ],
)
def test_year_is_read_from_the_first_answer(text: str, expected: int | None) -> None:
    assert one_year(text) == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), min_size=1, max_size=9))
def test_weighted_medians_equal_those_of_repeated_values(drawn: list[tuple[int, int]]) -> None:
    values, weights = (np.array(each, dtype=float) for each in zip(*drawn, strict=True))
    if weights.sum():
        expected = np.median(np.repeat(values, weights.astype(int)))
        assert weighted_medians(values, weights[None, :].astype(int)).tolist() == [expected]


def errors(*values: float | None) -> pl.DataFrame:
    ids = {"relation_id": ["P569"] * len(values), "pair_id": [f"t{i}" for i in range(len(values))]}
    return pl.DataFrame({**ids, "error": pl.Series(values, dtype=pl.Float64)})


def test_year_error_answers_without_a_year_are_left_out() -> None:
    mean, median = year_error(errors(1.0, None, 2.0, 9.0), seed=1, n_rounds=10)
    assert (mean.overall.value, median.overall.value) == (4.0, 2.0)
    assert median.by_relation["P569"] == median.overall


def test_year_error_no_dates_is_undefined() -> None:
    assert year_error(errors(), seed=1)[1] == (UNDEFINED, {})
    assert year_error(errors(None), seed=1)[0] == (UNDEFINED, {})


def test_year_errors_nearest_of_several_right_years_counts() -> None:
    objects = [{"object_id": DATE, "labels": [label]} for label in ("1900", "1950")]
    pairs = pl.DataFrame({"relation_id": ["P1"], "pair_id": ["t"], "objects": [objects]})
    answers = pl.DataFrame({"pair_id": ["t"], "text": ["1945"]})
    assert year_errors(answers, pairs)["error"].to_list() == [5.0]

"""Metrics of open questions, against naive readings of their formulas."""

import polars as pl
import pytest

from factsweep.operators.matching.verdicts import STATES
from factsweep.operators.metrics.open_questions import open_questions
from tests.builders import frame

DRAWS = {"seed": 1, "n_rounds": 50}
DETAILS = {"popularity": pl.Float64, "sample": pl.String, "answer_type": pl.String}


def graded(states: dict[str, list[str]], grader: str = "contains") -> pl.DataFrame:
    """The table `graded` of the states of each pair's prompts."""
    rows = [
        (f"{pair}.{n}", "r", pair, grader, state, 0.5)
        for pair, of_pair in states.items()
        for n, state in enumerate(of_pair)
    ]
    return frame("graded", *rows)


def measure(
    rows: pl.DataFrame,
    details: pl.DataFrame | None = None,
) -> pl.DataFrame:
    if details is None:
        pairs = rows["pair_id"].unique()
        details = pl.DataFrame({"pair_id": pairs}).with_columns(
            pl.lit(None, kind).alias(name) for name, kind in DETAILS.items()
        )
    no_failures = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})
    return open_questions(rows, details, no_failures, **DRAWS)


def value(metrics: pl.DataFrame, name: str, **place: str) -> float | None:
    """The value of a metric over everything, or at a slice or variant."""
    row = metrics.filter(
        pl.col("metric") == name,
        pl.col("slice").eq_missing(pl.lit(place.get("slice"))),
        pl.col("variant").eq_missing(pl.lit(place.get("variant"))),
    )
    return row["value"].item()


def test_open_questions_states_as_simpleqa_counts_them() -> None:
    right, wrong, none = STATES
    metrics = measure(graded({"a": [right], "b": [right], "c": [wrong], "d": [none], "e": [wrong]}))
    correct, given_attempted = 2 / 5, 2 / 4
    assert value(metrics, "correct") == pytest.approx(correct)
    assert value(metrics, "incorrect") == pytest.approx(2 / 5)
    assert value(metrics, "not_attempted") == pytest.approx(1 / 5)
    assert value(metrics, "correct_given_attempted") == pytest.approx(given_attempted)
    harmonic_mean = 2 * correct * given_attempted / (correct + given_attempted)
    assert value(metrics, "f1_attempted") == pytest.approx(harmonic_mean)
    assert value(metrics, "index") == pytest.approx(0)


def test_open_questions_a_fact_counts_once_whatever_its_wordings() -> None:
    right, wrong, _ = STATES
    metrics = measure(graded({"a": [right] * 9, "b": [wrong]}))
    assert value(metrics, "correct") == pytest.approx(0.5)


def test_open_questions_without_an_attempt_has_no_share_of_attempts() -> None:
    metrics = measure(graded({"a": [STATES[2]]}))
    assert value(metrics, "correct_given_attempted") is None
    assert value(metrics, "f1_attempted") == 0


def test_open_questions_graders_have_rows_of_their_own() -> None:
    right, wrong, _ = STATES
    rows = pl.concat(
        [graded({"a": [right], "b": [right]}), graded({"a": [right], "b": [wrong]}, "exact")]
    )
    metrics = measure(rows)
    assert value(metrics, "correct") == 1
    assert value(metrics, "correct", variant="grader=exact") == 0.5
    assert value(metrics, "exact_match") == 0.5
    assert value(metrics, "token_f1") == 0.5


def test_open_questions_by_popularity_type_and_relation() -> None:
    right, wrong, _ = STATES
    details = pl.DataFrame(
        {
            "pair_id": ["a", "b"],
            "popularity": [1.0, 2.0],
            "sample": [None, None],
            "answer_type": ["Person", "Date"],
        },
        {"pair_id": pl.String, **DETAILS},
    )
    metrics = measure(graded({"a": [right], "b": [wrong]}), details=details)
    assert value(metrics, "correct", slice="popularity=0") == 1
    assert value(metrics, "correct", slice="popularity=5") == 0
    assert value(metrics, "correct", slice="answer_type=Person") == 1
    assert value(metrics, "correct", slice="relation=r") == 0.5

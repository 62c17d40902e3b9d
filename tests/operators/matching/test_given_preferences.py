"""Log-probabilities that another system gives: in which order they count, and what is refused."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.matching.preferred import given_preferences
from tests.messages import naming


def given(logprobs: dict[str, float], **more: Any) -> pl.DataFrame:
    rows = {"prompt_id": "p", "entity_id": list(logprobs), "logprob": list(logprobs.values())}
    return pl.DataFrame({**rows, **more})


def prompts(*left_out: str) -> pl.DataFrame:
    row = {"prompt_id": "p", "candidates_id": "s", "answer_id": "a", "left_out": list(left_out)}
    return pl.DataFrame([row], schema_overrides={"left_out": pl.List(pl.String)})


def sets(*, ranked: bool) -> pl.DataFrame:
    rows = [
        {"candidates_id": "s", "entity_id": e, "rank": r if ranked else None, "labels": [e * 2]}
        for r, e in enumerate("abcd")
    ]
    return pl.DataFrame(rows, schema_overrides={"rank": pl.UInt32})


ALL = {"d": -1.0, "c": -2.0, "b": -3.0, "a": -2.5}


def distractors(found: pl.DataFrame) -> list[str]:
    return [each["entity_id"] for each in found["distractors"][0]]


def test_ranks_are_the_order_where_there_are_any() -> None:
    found = given_preferences(given(ALL), prompts(), sets(ranked=True), 100)
    assert distractors(found) == ["b", "c", "d"]
    assert found.select("logprob", "label").row(0) == (-2.5, "aa")


def test_most_plausible_are_the_distractors_where_there_are_no_ranks() -> None:
    found = given_preferences(given(ALL), prompts("c"), sets(ranked=False), 1)
    assert distractors(found) == ["d"]
    found = given_preferences(given(ALL), prompts("c"), sets(ranked=False), 100)
    assert distractors(found) == ["d", "b"]


def test_what_the_file_says_of_names_is_kept() -> None:
    more = {"label": ["x", "y", "z", "w"], "n_tokens": [1, 2, 3, 4], "open_logprob": [-0.5] * 4}
    found = given_preferences(given(ALL, **more), prompts(), sets(ranked=True), 100)
    assert found.select("label", "n_tokens", "open_logprob").row(0) == ("w", 4, -0.5)
    assert found["distractors"][0][0]["label"] == "z"


def test_prompt_without_its_answer_is_left_out() -> None:
    assert given_preferences(given({"d": -1.0}), prompts(), sets(ranked=True), 100).is_empty()


def test_answer_alone_has_no_distractors() -> None:
    found = given_preferences(given({"a": -1.0}), prompts(), sets(ranked=False), 100)
    assert distractors(found) == []


@pytest.mark.parametrize(
    ("logprobs", "problem"),
    [
        ({"a": -1.0, "b": -2.0, "c": -1.0}, "entity d: it has no row"),
        ({**ALL, "e": -1.0}, "entity e: it is no candidate"),
    ],
)
def test_missing_or_unknown_candidate_is_refused(logprobs: dict[str, float], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        given_preferences(given(logprobs), prompts(), sets(ranked=True), 100)


def test_candidate_that_stands_twice_is_refused() -> None:
    twice = pl.concat([given(ALL), given({"b": -1.0})])
    with pytest.raises(InputError, match=naming("entity b")):
        given_preferences(twice, prompts(), sets(ranked=True), 100)


def test_row_of_an_unknown_prompt_is_refused() -> None:
    other = given(ALL).with_columns(prompt_id=pl.lit("q"))
    with pytest.raises(InputError, match=naming("prompt q", "entity d")):
        given_preferences(other, prompts(), sets(ranked=True), 100)

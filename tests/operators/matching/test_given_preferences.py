"""Log-probabilities that another system gives: in which order they count, and what is refused."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.matching.preferred import read_preferences
from tests.messages import naming


def preferences(logprobs: dict[str, float], **columns: Any) -> pl.DataFrame:
    rows = {"prompt_id": "p", "entity_id": list(logprobs), "logprob": list(logprobs.values())}
    return pl.DataFrame({**rows, **columns})


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


def distractors(table: pl.DataFrame) -> list[str]:
    return [distractor["entity_id"] for distractor in table["distractors"][0]]


def test_ranks_are_the_order_where_there_are_any() -> None:
    table = read_preferences(preferences(ALL), prompts(), sets(ranked=True), 100)
    assert distractors(table) == ["b", "c", "d"]
    assert table.select("logprob", "label").row(0) == (-2.5, "aa")


def test_most_plausible_are_the_distractors_where_there_are_no_ranks() -> None:
    table = read_preferences(preferences(ALL), prompts("c"), sets(ranked=False), 1)
    assert distractors(table) == ["d"]
    table = read_preferences(preferences(ALL), prompts("c"), sets(ranked=False), 100)
    assert distractors(table) == ["d", "b"]


def test_what_the_file_says_of_names_is_kept() -> None:
    columns = {"label": ["x", "y", "z", "w"], "n_tokens": [1, 2, 3, 4], "open_logprob": [-0.5] * 4}
    table = read_preferences(preferences(ALL, **columns), prompts(), sets(ranked=True), 100)
    assert table.select("label", "n_tokens", "open_logprob").row(0) == ("w", 4, -0.5)
    assert table["distractors"][0][0]["label"] == "z"


def test_prompt_without_its_answer_is_left_out_and_an_answer_alone_has_no_distractors() -> None:
    assert read_preferences(preferences({"d": -1.0}), prompts(), sets(ranked=True), 100).is_empty()
    table = read_preferences(preferences({"a": -1.0}), prompts(), sets(ranked=False), 100)
    assert distractors(table) == []


def test_rows_that_do_not_fit_are_refused() -> None:
    twice = pl.concat([preferences(ALL), preferences({"b": -1.0})])
    for rows, names in (
        (preferences({"a": -1.0, "b": -2.0, "c": -1.0}), ("entity d", "has no row")),
        (preferences({**ALL, "e": -1.0}), ("entity e", "no candidate")),
        (twice, ("entity b", "twice")),
        (preferences(ALL).with_columns(prompt_id=pl.lit("q")), ("prompt q", "entity d")),
    ):
        with pytest.raises(InputError, match=naming(*names)):
            read_preferences(rows, prompts(), sets(ranked=True), 100)

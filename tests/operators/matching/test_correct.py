"""Which answers are right."""

import polars as pl
import pytest

from operators.matching.correct import correct

ANSWERS = {"pair_id": pl.String, "key": pl.String}


def key(*lemmas: str) -> str | None:
    return "\x1f" + "\x1f".join(lemmas) + "\x1f" if lemmas else None


LABELS = pl.DataFrame(
    {"pair_id": ["t", "t", "u"], "key": [key("uk"), key("great", "britain"), None]}
)


@pytest.mark.parametrize(
    ("lemmas", "expected"),
    [
        (["the", "uk"], True),
        (["great", "britain"], True),
        (["britain"], False),  # one direction only
        (["great", "old", "britain"], False),
        (["ukraine"], False),
        ([], False),
    ],
)
def test_correct_answer_must_contain_a_label(lemmas: list[str], expected: bool) -> None:
    answers = pl.DataFrame({"pair_id": ["t"], "key": [key(*lemmas)]}, schema=ANSWERS)
    assert correct(answers, LABELS)["correct"].to_list() == [expected]


def test_correct_empty_label_is_contained_in_nothing() -> None:
    answers = pl.DataFrame({"pair_id": ["u", "u"], "key": [key("uk"), None]})
    assert correct(answers, LABELS)["correct"].to_list() == [False, False]


def test_correct_pair_without_labels_is_false() -> None:
    answers = pl.DataFrame({"pair_id": ["v"], "key": [key("uk")]})
    assert correct(answers, LABELS)["correct"].to_list() == [False]


def test_correct_repeated_answers_keep_rows_and_columns() -> None:
    answers = pl.DataFrame(
        {"n": [2, 0, 1], "pair_id": ["t"] * 3, "key": [key("uk"), None, key("uk")]}
    )
    found = correct(answers, LABELS)
    assert found.drop("correct").equals(answers)
    assert found["correct"].to_list() == [True, False, True]


def test_correct_no_answers_gives_an_empty_boolean() -> None:
    assert correct(pl.DataFrame(schema=ANSWERS), LABELS).schema["correct"] == pl.Boolean

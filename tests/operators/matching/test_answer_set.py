"""Texts to sets of answers."""

import polars as pl
import pytest

from factsweep.operators.datasets.kamel import read_answers
from factsweep.operators.matching.answer_set import answer_forms, answer_set
from factsweep.operators.schemas import schema

NONE_APART = schema("relation_id text, bare text, full text").to_frame()


def texts(text: str | None) -> pl.DataFrame:
    return pl.DataFrame([("P1", text)], schema("relation_id text, text text"), orient="row")


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (" English; Indonesian%", ["english", "indonesian"]),
        ("English; Indonesian", ["english", "indonesian"]),  # "%" is missing
        ("English;%", ["english"]),
        ("English; ENGLISH ;english", ["english"]),
        ("English% What languages does he speak? Dutch", ["english"]),
        ("English\nWhat languages does he speak? Dutch", ["english"]),
        ("English\r\nDutch", ["english"]),
        ("\nEnglish", []),
        ("Éire; E\u0301ire", ["éire"]),  # composed and not
        ("Eire; Éire", ["eire", "éire"]),
        ("1,000; 1000; 1.000; 1 000", ["1000", "1 000"]),
        ("Winston-Salem (NC).", ["winstonsalem nc"]),
        ("Москва; 東京; नई दिल्ली", ["москва", "東京", "नई दिल्ली"]),
        ("a\u037eb", ["ab"]),  # the Greek question mark only looks like the separator
        ("", []),
        (" ;.;-%", []),
        (None, []),
    ],
)
def test_strict_answers_are_lower_case_and_bare(text: str | None, answers: list[str]) -> None:
    parsed = read_answers(texts(text), NONE_APART)
    assert sorted(parsed["answer"]) == sorted(answers)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (" English; Indonesian%", ["english", " indonesian"]),
        ("English;Indonesian", ["english", "indonesian"]),
        ("English;%", ["english", ""]),
        ("English; English", ["english", " english"]),
        ("English% and\nDutch.", ["english and\ndutch."]),
        ("  1,000 \n", ["1,000"]),  # outer white space of the whole text
        ("English;English;ENGLISH", ["english"]),  # equal answers count once
        ("", [""]),
        (None, None),
    ],
)
def test_answer_set_strips_the_text_and_no_answer(
    text: str | None, answers: list[str] | None
) -> None:
    parsed = texts(text).select(answer_set(pl.col("text"))).item()
    assert (None if parsed is None else list(parsed)) == answers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Paris", ["paris"]),
        ("1) Paris; 2) **Lima**", ["paris", "lima"]),
        ("**1.** Paris; 10", ["paris", "10"]),
        ("2. Division; 1. Division", ["2 division", "1 division"]),
        ("1.5; 1", ["15", "1"]),
    ],
)
def test_answer_forms_of_a_numbered_list_have_no_numbers(text: str, expected: list[str]) -> None:
    forms = pl.DataFrame({"text": [text]}).select(answer_forms(pl.col("text")))["text"]
    assert [form["bare"] for form in forms[0].to_list()] == expected

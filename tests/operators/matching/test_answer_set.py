"""Texts to sets of answers."""

import polars as pl
import pytest

from factsweep.operators.matching.answer_set import Matching, answer_set


def found(text: str | None, matching: Matching = "strict") -> list[str] | None:
    frame = pl.DataFrame({"text": [text]}, schema={"text": pl.String})
    answers: list[str] | None = frame.select(answer_set(pl.col("text"), matching)).item()
    return None if answers is None else list(answers)


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
        (None, None),
    ],
)
def test_answer_set_strict_is_lower_case_and_bare(text: str, answers: list[str]) -> None:
    assert found(text) == answers


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
def test_answer_set_paper_strips_the_text_and_no_answer(text: str, answers: list[str]) -> None:
    assert found(text, "paper") == answers

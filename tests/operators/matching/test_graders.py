"""Graders of open questions: their rules, and how they agree with people."""

import json
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.matching.answer_span import answer_span, is_refusal, token_f1
from factsweep.operators.matching.graders import Contains, Exact, Grader
from factsweep.operators.matching.normalise import Normaliser

CONTAINS = Contains(Normaliser(), "en")


def verdict(grader: Grader, answer: str, *gold: str) -> bool:
    """What a grader says of one answer."""
    rows = pl.DataFrame({"pair_id": "q", "span": [answer_span(answer)]})
    return bool(grader.grade(rows, {"q": gold})[0])


SPANS = {
    "\n Answer: **Paris**.\nQ: And Spain?": "Paris.",
    "A: “The Beatles”": "The Beatles",
    "The answer is: Bob": ": Bob",
    "The correct answer is <b>42</b>": "42",
    "Anne": "Anne",
    "**Answer:** Paris": "Paris",
    "Answer:\nParis": "Paris",
    "```\nParis\n```": "Paris",
    "snake_case": "snake_case",
    "": "",
}


@pytest.mark.parametrize("answer", SPANS)
def test_answer_span(answer: str) -> None:
    assert answer_span(answer).lstrip(": ") == SPANS[answer].lstrip(": ")


RIGHT = (
    ("It was Paris, I think", "Paris"),
    ("a guitar", "Guitars"),
    ("James Rodriguez", "James Rodríguez"),
    ("Eddie Paul Martinez", "Eddie Martinez"),
    ("Luke Combs", "Luke Albert Combs"),
    ("Mark A. Sheppard", "Mark Andreas Sheppard"),
    ("Robert Walpole", "Sir Robert Walpole"),
    ("Lisbon", "Lisbon, Portugal"),
    ("the Zambezi River", "on the Zambezi River"),
    ("Sindhu", "Sindhu (Indus River)"),
    ("14", "fourteen"),
    ("twenty - four letters", "24"),
    ("1,500,000", "1.5 million"),
    ("1,500 metres", "1500"),
    ("2,000", "2000"),
    ("A. A. Milne", "A. A. Milne"),
    ("July 20, 1969", "20 July 1969"),
    ("October 25, 1978", "1978"),
    ("in July 1969", "20 July 1969"),
    ("the twenty-first", "21st"),
    ("20th century", "the twentieth century"),
    ("Maria Alonso", "María Alonso"),
    ("Ray Bolger", "Raymond Wallace Bolger"),
    ("American Express Co.", "American Express Company"),
    ("Procter & Gamble", "Procter and Gamble"),
    ("J.R.R. Tolkien", "J. R. R. Tolkien"),
    ("the NFL", "National Football League"),
    ("US", "U.S."),
    ("5 ft", "5 feet"),
    ("George Bush", "George H. W. Bush"),
)
WRONG = (
    ("", "Paris"),
    ("Parish", "Paris"),
    ("London. Not Paris\nParis", "Rome"),
    ("May 8, 1970", "1970", "February 24, 1970"),
    ("1969", "20 July 1969"),
    ("July 21, 1969", "20 July 1969"),
    ("Albert Combs", "Luke Albert Combs Smith"),
    ("Angeles", "Los Angeles"),
    ("New York", "New York Times"),
    ("John Watson", "James Watson"),
    ("15", "14"),
    ("Vitamin C", "Vitamin A"),
    ("B", "A"),
    ("third season", "3"),
    ("O(log n)", "O(n)"),
    ("South Wales", "New South Wales"),
    ("Bank of North America", "Bank of America"),
    ("George H. W. Bush", "George W. Bush"),
    ("1900", "before 1900"),
    ("NFC", "National Football League"),
    ("LA", "Los Alamos"),
)


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case[0])
def test_contains_right(case: tuple[str, ...]) -> None:
    assert verdict(CONTAINS, *case)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[0] or "empty")
def test_contains_wrong(case: tuple[str, ...]) -> None:
    assert not verdict(CONTAINS, *case)


@pytest.mark.parametrize(
    ("answer", "expected"), [("The Beatles!", True), ("Beatles, Wings", False), ("", False)]
)
def test_exact(answer: str, expected: bool) -> None:
    assert verdict(Exact(), answer, "Beatles") is expected


def test_grade_keeps_the_order_of_the_rows() -> None:
    rows = pl.DataFrame({"pair_id": ["a", "b", "a"], "span": ["x", "x", "y"]})
    for grader in (CONTAINS, Exact()):
        assert grader.grade(rows, {"a": ["y"], "b": ["x"]}).to_list() == [False, True, True]


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ("", True),
        ("...", True),
        ("I don’t know.", True),
        ("Sorry, I do not know who it was", True),
        ("Unknown", True),
        ("Unknown Pleasures", False),
        ("Nonesuch", False),
        ("We do not know", False),
    ],
)
def test_is_refusal(span: str, expected: bool) -> None:
    assert is_refusal(span, ("i don't know", "i do not know", "unknown", "none")) is expected


@pytest.mark.parametrize(
    ("span", "label", "expected"), [("a b", "the b c", 2 / 3), ("", "", 1), ("a c", "b", 0)]
)
def test_token_f1(span: str, label: str, expected: float) -> None:
    assert token_f1(span, label) == pytest.approx(expected)


def test_contains_agrees_with_people(shared_data: Path) -> None:
    # EfficientQA's judgements: at least 30 % of the right answers that are no gold ones are found,
    # and at least 98 % of the wrong ones are not counted (the figures of docs/metrics.md).
    path = shared_data / "nq-open" / "efficientqa.judged.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    questions = [json.loads(line) for line in path.read_text().splitlines()]
    gold = {str(n): question["answer"] for n, question in enumerate(questions)}
    shares = {}
    for kind in ("def_correct_predictions", "def_incorrect_predictions"):
        rows = [
            (str(n), answer_span(a)) for n, question in enumerate(questions) for a in question[kind]
        ]
        table = pl.DataFrame(rows, {"pair_id": pl.String, "span": pl.String}, orient="row")
        for grader in (CONTAINS, Exact()):
            shares[grader.name, kind] = grader.grade(table, gold).mean()
    assert shares["contains", "def_correct_predictions"] >= 0.355
    assert shares["contains", "def_incorrect_predictions"] <= 0.0155
    assert shares["exact", "def_incorrect_predictions"] == 0

"""Open questions: the layouts of their authors become facts; unfit rows are refused."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.questions import facts_from_tables, is_questions
from factsweep.operators.errors import InputError
from tests.messages import naming

Row = dict[str, Any]


def read(rows: list[Row], name: str = "set.jsonl") -> list[tuple[Any, ...]]:
    """Each question's pair, wordings and right answers."""
    facts = facts_from_tables({name: pl.DataFrame(rows)}, None)
    labels = pl.col("objects").list.first().struct.field("labels")
    return facts.pairs.select("pair_id", "subjects", labels).rows()


LAYOUTS: dict[str, tuple[str, Row, tuple[Any, ...]]] = {
    "PopQA": (
        "test.tsv",
        {
            "id": "42",
            "prop": "occupation",
            "s_pop": "142",
            "question": "What does Ada do?",
            "possible_answers": '["politician", "pol"]',
        },
        ("occupation.42", ["What does Ada do?"], ["politician", "pol"]),
    ),
    "EntityQuestions": (
        "P17.test.json",
        {"question": "Where is Oldtown?", "answers": ["Norland"]},
        ("P17.000000", ["Where is Oldtown?"], ["Norland"]),
    ),
    "SimpleQA": (
        "simple_qa_test_set.csv",
        {
            "metadata": "{'topic': 'TV shows', 'answer_type': 'Person', 'urls': ['https://a.org']}",
            "problem": "Who won?",
            "answer": "Ann",
        },
        ("TV-shows.000000", ["Who won?"], ["Ann"]),
    ),
    "SimpleQA Verified": (
        "simpleqa_verified.csv",
        {"original_index": "5", "problem": "Who won?", "answer": "Ann", "topic": "Art"},
        ("Art.5", ["Who won?"], ["Ann"]),
    ),
    "TriviaQA": (
        "web-dev.json",
        {
            "Data": [
                {
                    "Question": "Who was it?",
                    "QuestionId": "tc_1",
                    "Answer": {"Value": "Harry Truman", "Aliases": ["Truman", "Harry Truman"]},
                }
            ]
        },
        ("questions.tc_1", ["Who was it?"], ["Harry Truman", "Truman"]),
    ),
    "NQ-open": (
        "NQ-open.dev.jsonl",
        {"question": "who was it", "answer": ["Bob", "Bobby"]},
        ("questions.000000", ["who was it"], ["Bob", "Bobby"]),
    ),
    "one's own": (
        "mine.jsonl",
        {
            "Question": "Who was it?",
            "wordings": ["Which person was it?"],
            "answer": "Bob",
            "aliases": ["Bobby"],
        },
        ("questions.000000", ["Who was it?", "Which person was it?"], ["Bob", "Bobby"]),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_facts_from_tables_each_published_layout(layout: str) -> None:
    name, row, expected = LAYOUTS[layout]
    assert read([row], name) == [expected]


def test_facts_from_tables_keeps_popularity_date_and_type() -> None:
    row = {"question": "Who?", "answer": "A", "popularity": "1.5", "date": "2020", "type": "Person"}
    further = facts_from_tables({"a.csv": pl.DataFrame([row])}, None).extra_tables
    assert further["details"].select("popularity", "start").rows() == [(1.5, "2020")]
    assert further["answer_types"]["answer_type"].to_list() == ["Person"]


def test_facts_from_tables_the_same_question_twice_counts_once() -> None:
    row = {"question": "Who?", "answers": ["A", "B"]}
    assert len(read([row, {**row, "answers": ["B", "A"]}])) == 1


def test_facts_from_tables_questions_with_ids_of_their_own_all_count() -> None:
    rows = [{"id": n, "question": "Who is John?", "answer": f"A{n}"} for n in range(2)]
    assert [pair for pair, *_ in read(rows)] == ["questions.0", "questions.1"]


UNFIT: dict[str, tuple[list[Row], tuple[str, ...]]] = {
    "other answers": (
        [{"question": "Who?", "answer": "A"}, {"question": "who?", "answer": "B"}],
        ("row 1", "who?", "row 0", "other answers", "id"),
    ),
    "an id twice": (
        [{"id": 1, "question": f"Who {n}?", "answer": "A"} for n in range(2)],
        ("row 1", "'1'", "row 0", "its own"),
    ),
    "no answers": ([{"question": "Who?", "answers": []}], ("row 0", "no right answer", "drop")),
    "no question": ([{"question": " ", "answer": "A"}], ("row 0", "no question", "drop")),
    "no column": ([{"question": "Who?", "reply": "A"}], ("answers", "question, reply")),
    "a popularity that is no number": (
        [{"question": "Who?", "answer": "A", "popularity": "high"}],
        ("row 0", "'high'", "number"),
    ),
    "a popularity that is not finite": (
        [{"question": "Who?", "answer": "A", "popularity": "nan"}],
        ("row 0", "'nan'", "number"),
    ),
    "a list that ends nowhere": (
        [{"question": "Who?", "answer": "['A', 'B'"}],
        ("row 0", "['A', 'B'", "no list"),
    ),
}


@pytest.mark.parametrize("fault", UNFIT)
def test_facts_from_tables_refuses_an_unfit_row(fault: str) -> None:
    rows, parts = UNFIT[fault]
    with pytest.raises(InputError, match=naming("set.jsonl", *parts)):
        read(rows)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(["Problem", "Answer"], True), (["question", "gold"], True), (["question", "context"], False)],
)
def test_is_questions(columns: list[str], expected: bool) -> None:
    assert is_questions(columns) is expected

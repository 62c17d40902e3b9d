"""Which wordings may stand for a question."""

import pytest

from factsweep.operators.construction.wordings import find_flaws
from factsweep.operators.datasets.questions import Question
from factsweep.operators.matching.graders import Contains
from factsweep.operators.matching.normalise import BLANK, Normaliser

TOLD = "In which year did Ada Lovelace, the pioneer, first meet Babbage?"


def flaw(
    text: str, asked: str, *answers: str, subject: str | None = None, language: str = "en"
) -> str | None:
    """What is wrong with a wording of a question."""
    question = Question("t, row 0", "r", None, [asked], [*answers], None, None, None, subject)
    pipeline = BLANK if language == "en" else f"{BLANK}-{language}"
    (flaw,) = find_flaws([(question, text)], Contains(Normaliser(pipeline), language))
    return flaw


@pytest.mark.parametrize(
    ("text", "asked", "answers", "expected"),
    [
        ("When did Lovelace, or Ada, first meet Babbage?", TOLD, ["1833"], None),
        ("When did Ada Lovelace first meet Babbage", TOLD, ["1833"], "no question mark"),
        ("When did Ada first meet Babbage?", TOLD, ["1833"], "name"),
        ("Was it in 1833 that Ada Lovelace met Babbage?", TOLD, ["1833"], "numbers"),
        ("Who won in 2015?", "who won in 2014", ["Germany"], "numbers"),
        ("Who has 1,000 songs?", "who has 1000 songs", ["Bob"], None),
        ("Is William Shakespeare Hamlet's author?", "Who wrote Hamlet?", ["Shakespeare"], "answer"),
        ("Which is the larger, Asia or Africa?", "Is Asia or Africa larger?", ["Asia"], None),
        ("Who is the writer?", "who sang halo", ["Bob"], "word of the question"),
        ("WHO IS THE AUTHOR OF HAMLET?", "WHO WROTE HAMLET?", ["Shakespeare"], None),
    ],
)
def test_flaw_of_a_wording(text: str, asked: str, answers: list[str], expected: str | None) -> None:
    result = flaw(text, asked, *answers)
    assert result is None if expected is None else expected in str(result)


def test_flaw_of_a_subject_in_small_letters_and_of_capital_nouns() -> None:
    asked, lost = "what does the bald man do", "What is the man's job?"
    assert "subject" in str(flaw(lost, asked, "barber", subject="bald man"))
    german = "Wer ist der Autor von Hamlet?", "Wer schrieb Hamlet?"
    assert flaw(german[1], german[0], "Shakespeare", language="de") is None
    chinese = "谁写了《哈姆雷特》?", "《哈姆雷特》是谁写的?"
    assert flaw(chinese[1], chinese[0], "莎士比亚", language="zh") is None

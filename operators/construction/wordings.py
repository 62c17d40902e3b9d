"""Further wordings of questions: the prompt of a language model, and the checks of them.

No paper defines these checks: they are ours (docs/questions.md).
"""

import re
from collections.abc import Sequence

import polars as pl

from factsweep.operators.construction.paraphrase import wording
from factsweep.operators.datasets.questions import Question
from factsweep.operators.matching.cldr import fold_text
from factsweep.operators.matching.graders import Contains
from factsweep.operators.matching.normalise import BY_CHARACTER

REPETITION = "a repetition"
_NO_QUESTION = "no question mark at the end"
_NO_NAME = "lacks the subject or a name"
_OTHER_NUMBERS = "has other numbers"
_OTHER_WORDS = "has no word of the question"
_ANSWER = "names a right answer"
_INSTRUCTION = (
    "Write {n} other wordings of the question below, in its language, as a numbered list and "
    "nothing else. Each one asks for the same thing in other words and another word order, keeps "
    "every name, title, date and number as it is written, ends with a question mark, and says "
    "nothing about the answer."
)
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_QUESTION_MARKS = ("?", "？", "؟", ";")  # the last is Greek
_MARKS = " ." + "".join(_QUESTION_MARKS)
_CAPITAL_NOUNS = ("de", "lb")  # a capital marks no name there
_SHORTEST = 4  # letters of a word that two wordings can be expected to share


def wording_prompt(question: str, n: int) -> str:
    """The prompt for n further wordings of a question."""
    return f"{_INSTRUCTION.format(n=n)}\n{question}"


def is_repetition(text: str, earlier: Sequence[str]) -> bool:
    """Whether a wording is an earlier one, but for case, blanks and the mark at its end.

    >>> is_repetition("who wrote  Hamlet", ["Who wrote Hamlet?"])
    True
    """
    return any(wording(text.rstrip(_MARKS)) == wording(other.rstrip(_MARKS)) for other in earlier)


def find_flaws(proposals: Sequence[tuple[Question, str]], grader: Contains) -> list[str | None]:
    """Why each proposed wording cannot stand for its question; null: nothing was found.

    A right answer counts as named if the grader finds it in a wording, and not in the question.
    """
    questions = {question.place: question for question, _ in proposals}
    gold = {place: question.answers for place, question in questions.items()}
    originals = pl.DataFrame(
        {"pair_id": [*questions], "span": [q.wordings[0] for q in questions.values()]}
    )
    texts = [(question.place, text) for question, text in proposals]
    wordings = pl.DataFrame(texts, originals.schema, orient="row")
    names_answer = dict(zip(questions, grader.grade(originals, gold), strict=True))
    is_named = grader.grade(wordings, gold)
    return [
        _find_flaw(question, text, grader.language)
        or (_ANSWER if leaks and not names_answer[question.place] else None)
        for (question, text), leaks in zip(proposals, is_named, strict=True)
    ]


def _find_flaw(question: Question, text: str, language: str) -> str | None:
    original = question.wordings[0]
    if not text.endswith(_QUESTION_MARKS):
        return _NO_QUESTION
    if _numbers(text) != _numbers(original):
        return _OTHER_NUMBERS
    subject, folded = fold_text(question.subject or "").casefold(), fold_text(text).casefold()
    words = {*_words(folded)}
    names = _names(original, language)
    lacks_subject = subject in fold_text(original).casefold() and subject not in folded
    if lacks_subject or not names <= words:
        return _NO_NAME
    content = {word for word in _words(original) if len(word) >= _SHORTEST}
    has_none = content and not names and not subject and content.isdisjoint(words)
    return _OTHER_WORDS if has_none and language not in BY_CHARACTER else None


def _words(text: str) -> list[str]:
    return _WORD.findall(fold_text(text).casefold())


def _numbers(text: str) -> set[str]:
    return {number.replace(",", "") for number in _NUMBER.findall(fold_text(text))}


def _names(question: str, language: str) -> set[str]:
    """The words with a capital behind the first word, where capitals mark names.

    >>> sorted(_names("In which city did Ada Lovelace live?", "en")), _names("WHO WAS ADA?", "en")
    (['ada', 'lovelace'], set())
    """
    later = _WORD.findall(fold_text(question))[1:]
    if language in _CAPITAL_NOUNS or not any(word.islower() for word in later):
        return set()
    return {word.casefold() for word in later if word[0].isupper()}

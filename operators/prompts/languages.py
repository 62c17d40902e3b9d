"""The words around facts in a language: what is instructed, and what marks question and answer."""

from dataclasses import dataclass

MASK = "[MASK]"


@dataclass(frozen=True)
class Words:
    """The words of a language (conf/language/); those of English are the papers', below.

    `mask` and `question` instruct, in the two styles of prompts. `asks` stands before a question,
    `answers` and `blank` before an answer; `ends` is behind an answer that is shown.
    Source: BELIEF-ICL, section 3.1 and appendix D.1 (English); the rest are translations.
    """

    language: str
    mask: str
    question: str
    asks: str
    answers: str
    blank: str = " "
    ends: str = "."


ENGLISH = Words(
    language="en",
    mask="Predict the [MASK] in each sentence in one word.",
    question="Answer each question in one word.",
    asks="Q: ",
    answers="A:",
)

"""Paraphrases of manual templates, asked of a language model.

Source: BELIEF, appendix A.2, step 2, "Paraphrasing templates using GPT-4".
"""

import re
from collections.abc import Callable, Iterator, Mapping

import polars as pl

from factsweep.operators.schemas import schema

SLOTS = ("[X]", "[Y]")
N_PARAPHRASES = 19
MANUAL = schema("relation_id text, template text")
PARAPHRASES = schema("relation_id text, template text, paraphrase text")

Ask = Callable[[str], str]

# The paper's words.
_INSTRUCTION = (
    "You are a professional tool that can paraphrase sentences into natural sentences that can "
    "correctly represent the relationship between [X] and [Y], without repetition. Make the "
    "paraphrase as diverse as possible using simple words. Please paraphrase the given sentence "
    "{n} times."
)
_ITEM = re.compile(r"^\s*(?:\(?\d+[.):]|[-*•–])\s+(?=\S)")
_QUOTES = "\"'“”„‘’«»`*"


def paraphrased(
    ask: Ask,
    manual: pl.DataFrame,
    *,
    n: int = N_PARAPHRASES,
    max_rounds: int = 10,
    hints: Mapping[str, str] | None = None,
) -> Iterator[list[tuple[str, str, str]]]:
    """Ask for n paraphrases of each manual template (MANUAL): a template's rows of PARAPHRASES.

    What is unfit or said before in the relation is removed, and the same asked again, up to
    `max_rounds` times per template. `hints`: a relation's sentence ("Be aware that [Y] is …").
    """
    by_relation = manual.group_by("relation_id").agg("template")
    said = {each: set(map(wording, templates)) for each, templates in by_relation.iter_rows()}
    for relation_id, template in manual.select(list(MANUAL)).iter_rows():
        prompt = instruction(template, n=n, hint=(hints or {}).get(relation_id))
        texts = until_enough(ask, prompt, said[relation_id], n, max_rounds)
        yield [(relation_id, template, text) for text in texts]


def instruction(template: str, *, n: int = N_PARAPHRASES, hint: str | None = None) -> str:
    """The prompt for n paraphrases of a template: the paper's instruction, hint and sentence."""
    return "\n".join(filter(None, (_INSTRUCTION.format(n=n), hint, template)))


def candidates(answer: str) -> list[str]:
    r"""The sentences of an answer: its list's items, or its lines where it has no list; none bold.

    >>> candidates("Here they are:\n1. “[X] died in [Y].”\n2) **[Y]** saw [X] die.\n")
    ['[X] died in [Y].', '[Y] saw [X] die.']
    """
    lines = [line for line in answer.splitlines() if line.strip()]
    items = [line for line in lines if _ITEM.match(line)]
    bare = (
        _ITEM.sub("", line).replace("**", "").strip().strip(_QUOTES).strip()
        for line in items or lines
    )
    return [text for text in bare if text]


def has_slots(text: str) -> bool:
    """Whether a text has [X] once and [Y] once.

    >>> has_slots("[X] died in [Y]."), has_slots("[X] and [X] died in [Y].")
    (True, False)
    """
    return all(text.count(slot) == 1 for slot in SLOTS)


def wording(text: str) -> str:
    """A text as it is compared with others: without case, extra spaces and its last full stop.

    >>> wording("[X]  died in [Y] .") == wording("[X] Died in [Y]")
    True
    """
    return " ".join(text.casefold().split()).rstrip(" .")


def until_enough(ask: Ask, prompt: str, said: set[str], n: int, max_rounds: int) -> list[str]:
    """At most n sentences that are fit and were not said; what is taken is added to `said`."""
    kept: list[str] = []
    for _ in range(max_rounds):
        if len(kept) >= n:
            break
        for text in candidates(ask(prompt)):
            if len(kept) < n and has_slots(text) and wording(text) not in said:
                said.add(wording(text))
                kept.append(text)
    return kept

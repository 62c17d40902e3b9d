"""Paraphrases of manual templates: asked of a language model, then kept or dropped by a person.

Source: BELIEF, appendix A.2, step 2, "Paraphrasing templates using GPT-4", and section 4.1: "all
templates are filtered by human reviewers". The paper shows no sheet; this one is ours.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from factsweep.operators.datasets.facts import style
from factsweep.operators.errors import InputError
from factsweep.operators.metrics.data_set import words
from factsweep.operators.schemas import refuse, schema

SLOTS = ("[X]", "[Y]")
N_PARAPHRASES = 19
MANUAL = schema("relation_id text, template text")
PARAPHRASES = schema("relation_id text, template text, paraphrase text")

Ask = Callable[[str], str]
# Answers prompts in any order: the place of each, and its text.
AskAll = Callable[[Sequence[str]], Iterator[tuple[int, str]]]

# The paper's words.
_INSTRUCTION = (
    "You are a professional tool that can paraphrase sentences into natural sentences that can "
    "correctly represent the relationship between [X] and [Y], without repetition. Make the "
    "paraphrase as diverse as possible using simple words. Please paraphrase the given sentence "
    "{n} times."
)
_ITEM = re.compile(r"^\s*(?:\(?\d+[.):]|[-*•–])\s+(?=\S)")
_QUOTES = "\"'“”„‘’«»`*"


def ask_paraphrases(
    ask: Ask,
    manual: pl.DataFrame,
    *,
    n: int = N_PARAPHRASES,
    max_rounds: int = 10,
    hints: Mapping[str, str] | None = None,
) -> Iterator[list[tuple[str, str, str]]]:
    """Ask for n paraphrases of each manual template (MANUAL): a template's rows of PARAPHRASES.

    Unfit and repeated ones of the relation are dropped, and the same prompt is asked again, up to
    `max_rounds` times per template. `hints`: a relation's sentence ("Be aware that [Y] is …").
    """
    by_relation = manual.group_by("relation_id").agg("template")
    earlier = {name: set(map(wording, templates)) for name, templates in by_relation.iter_rows()}
    for relation_id, template in manual.select(list(MANUAL)).iter_rows():
        prompt = instruction(template, n=n, hint=(hints or {}).get(relation_id))
        texts = collect_sentences(ask, prompt, earlier[relation_id], n, max_rounds)
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
    texts = (_ITEM.sub("", line).replace("**", "").strip() for line in items or lines)
    return [*filter(None, (text.strip(_QUOTES).strip() for text in texts))]


def has_slots(text: str) -> bool:
    """Whether a text has [X] once and [Y] once.

    >>> has_slots("[X] died in [Y]."), has_slots("[X] and [X] died in [Y].")
    (True, False)
    """
    return all(text.count(slot) == 1 for slot in SLOTS)


def wording(text: str) -> str:
    """The form of a text for comparisons: without case, extra spaces and its last full stop.

    >>> wording("[X]  died in [Y] .") == wording("[X] Died in [Y]")
    True
    """
    return " ".join(text.casefold().split()).rstrip(" .")


def collect_sentences(
    ask: Ask, prompt: str, earlier: set[str], n: int, max_rounds: int
) -> list[str]:
    """At most n new sentences with both slots; their wordings are added to `earlier`."""
    sentences: list[str] = []
    for _ in range(max_rounds):
        if len(sentences) >= n:
            break
        for text in candidates(ask(prompt)):
            if len(sentences) < n and has_slots(text) and wording(text) not in earlier:
                earlier.add(wording(text))
                sentences.append(text)
    return sentences


SHEET = schema("relation_id text, template text, paraphrase text, keep text, reason text")
_ANSWERS = {"yes": True, "y": True, "true": True, "1": True, "x": True}
_ANSWERS |= {"no": False, "n": False, "false": False, "0": False}


def review_sheet(
    manual: pl.DataFrame, paraphrases: pl.DataFrame, *, min_distance: float = 0.25
) -> pl.DataFrame:
    """The sheet (SHEET) of paraphrases (PARAPHRASES) of manual templates (MANUAL).

    `keep` is "no" where one cannot be used, empty where a person must decide (another style than
    the manual template, or words within `min_distance` of an earlier one), and else "yes".
    """
    texts_by_relation: dict[str, list[str]] = {}
    for relation_id, template in manual.select(list(MANUAL)).iter_rows():
        texts_by_relation.setdefault(relation_id, []).append(template)
    rows = []
    for relation_id, template, text in paraphrases.select(list(PARAPHRASES)).iter_rows():
        earlier = texts_by_relation.setdefault(relation_id, [])
        keep, reason = _first_look(text, template, earlier, min_distance)
        if keep != "no":
            earlier.append(text)
        rows.append((relation_id, template, text, keep, reason))
    return pl.DataFrame(rows, schema=SHEET, orient="row")


def accepted_paraphrases(sheet: pl.DataFrame) -> pl.DataFrame:
    """The paraphrases (PARAPHRASES) that the sheet keeps; a person may have corrected their texts.

    `keep` is yes or no (y, n, true, false, 1, 0, x; in any case). A row that is gone is not kept.

    Raises:
        InputError: a column is missing, a row is undecided, or a kept text has not [X] and [Y] once
            each; rows are counted as in a spreadsheet, the first after the header is 2.
    """
    for column in (*PARAPHRASES, "keep"):
        if column not in sheet.columns:
            raise InputError(
                f"review sheet: column {column} is missing; it has {', '.join(SHEET)}."
            )
    # A spreadsheet may turn yes into a Boolean, and a reader an empty cell into a null.
    rows = sheet.select(
        pl.col(*PARAPHRASES, "keep").cast(pl.String).fill_null("").str.strip_chars()
    )
    keep, text = pl.col("keep").str.to_lowercase(), pl.col("paraphrase")
    rows = rows.with_columns(answer=keep.replace_strict(_ANSWERS, default=None))
    answer, row = pl.col("answer"), ", row {row}: "
    fits = pl.all_horizontal(text.str.count_matches(slot, literal=True) == 1 for slot in SLOTS)
    fix = "must have [X] once and [Y] once; correct it or write no."
    problems = {
        f"{row}keep is {{keep!r}}; write yes or no for {{paraphrase!r}}.": answer.is_null(),
        f"{row}{{paraphrase!r}} {fix}": answer & ~fits,
    }
    refuse(rows.with_row_index("row", 2), problems, ["row", "keep", "paraphrase"], "review sheet")
    return rows.filter("answer").select(list(PARAPHRASES))


def _first_look(
    text: str, template: str, earlier: list[str], min_distance: float
) -> tuple[str, str]:
    """The cells of `keep` and `reason`."""
    counts = {slot: text.count(slot) for slot in SLOTS}
    wrong = [f"{slot} stands {count} times" for slot, count in counts.items() if count != 1]
    if wrong:
        return "no", "; ".join(wrong)
    if wording(text) in map(wording, earlier):
        return "no", "a repetition"
    reasons = []
    texts = pl.DataFrame({"text": [text, template]})
    style_of_text, manual = texts.select(style(pl.col("text"))).to_series()
    if style_of_text != manual:
        reasons.append(f"a {style_of_text}, where the manual template is a {manual}")

    def distance(other: str) -> float:
        return 1 - len(words(text) & words(other)) / len(words(text) | words(other))

    near = min(earlier, key=distance, default=None)
    if near is not None and distance(near) < min_distance:
        reasons.append(f"close to: {near}")
    return ("" if reasons else "yes"), "; ".join(reasons)

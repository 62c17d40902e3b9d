"""The sheet on which a person keeps or drops each paraphrase, and what it says when it is back.

Source: BELIEF, section 4.1: "all templates are filtered by human reviewers". The paper shows no
sheet; this one is ours.
"""

import polars as pl

from factsweep.operators.construction.paraphrase import MANUAL, PARAPHRASES, SLOTS, wording
from factsweep.operators.datasets.facts import style
from factsweep.operators.errors import InputError
from factsweep.operators.metrics.data_set import words
from factsweep.operators.schemas import schema
from factsweep.operators.schemas.checks import refuse

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
    earlier: dict[str, list[str]] = {}
    for relation_id, template in manual.select(list(MANUAL)).iter_rows():
        earlier.setdefault(relation_id, []).append(template)
    rows = []
    for relation_id, template, text in paraphrases.select(list(PARAPHRASES)).iter_rows():
        before = earlier.setdefault(relation_id, [])
        keep, reason = _first_look(text, template, before, min_distance)
        if keep != "no":
            before.append(text)
        rows.append((relation_id, template, text, keep, reason))
    return pl.DataFrame(rows, schema=SHEET, orient="row")


def reviewed(sheet: pl.DataFrame) -> pl.DataFrame:
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
    # A spreadsheet may turn yes into a Boolean, and a reader into a null what is empty.
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
    text: str, template: str, before: list[str], min_distance: float
) -> tuple[str, str]:
    """What to write under `keep` and `reason`."""
    counts = {slot: text.count(slot) for slot in SLOTS}
    wrong = [f"{slot} stands {count} times" for slot, count in counts.items() if count != 1]
    if wrong:
        return "no", "; ".join(wrong)
    if wording(text) in map(wording, before):
        return "no", "a repetition"
    reasons = []
    if _style(text) != _style(template):
        reasons.append(f"a {_style(text)}, where the manual template is a {_style(template)}")
    near = min(before, key=lambda other: _distance(text, other), default=None)
    if near is not None and _distance(text, near) < min_distance:
        reasons.append(f"close to: {near}")
    return ("" if reasons else "yes"), "; ".join(reasons)


def _distance(one: str, other: str) -> float:
    a, b = words(one), words(other)
    return 1 - len(a & b) / len(a | b)


def _style(text: str) -> str:
    return str(pl.select(style(pl.lit(text))).item())

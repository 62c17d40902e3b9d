"""Asking for paraphrases (of functions that answer from a list), and the review sheet."""

import io
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.construction.paraphrase import (
    MANUAL,
    PARAPHRASES,
    SHEET,
    accepted_paraphrases,
    ask_paraphrases,
    candidates,
    has_slots,
    instruction,
    review_sheet,
    wording,
)
from factsweep.operators.errors import InputError
from tests.messages import naming

DIED = "[X] died in [Y]."


def manual(*templates: str) -> pl.DataFrame:
    return pl.DataFrame([("P20", template) for template in templates], schema=MANUAL, orient="row")


def answering(*answers: str) -> tuple[Callable[[str], str], list[str]]:
    """A model that gives these answers in turn, the last one for ever; what it is asked."""
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return answers[min(len(prompts), len(answers)) - 1]

    return ask, prompts


def texts_of(rows: list[tuple[str, str, str]]) -> tuple[str, ...]:
    return tuple(text for _, _, text in rows)


def only(*answers: str, n: int = 3, **options: int) -> list[tuple[str, str, str]]:
    (result,) = ask_paraphrases(answering(*answers)[0], manual(DIED), n=n, **options)
    return result


def numbered(*texts: str) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))


def test_paraphrased_enough_in_one_answer_asks_once() -> None:
    ask, prompts = answering(numbered("a [X] [Y]", "b [X] [Y]", "c [Y] [X]", "d [X] [Y]"))
    (result,) = ask_paraphrases(ask, manual(DIED), n=3)
    assert result == [("P20", DIED, text) for text in ("a [X] [Y]", "b [X] [Y]", "c [Y] [X]")]
    assert len(prompts) == 1


def test_paraphrased_repetitions_are_removed_and_asked_again_with_the_same_prompt() -> None:
    ask, prompts = answering(
        numbered("a [X] [Y].", "A [X]  [Y] .", "[x]", "[X] died in [Y]"),
        numbered("a [X] [Y].", "b [X] [Y]."),
    )
    (result,) = ask_paraphrases(ask, manual(DIED), n=2)
    assert result == [("P20", DIED, "a [X] [Y]."), ("P20", DIED, "b [X] [Y].")]
    assert prompts == [instruction(DIED, n=2)] * 2


def test_paraphrased_a_model_that_repeats_itself_is_given_up() -> None:
    ask, prompts = answering(numbered("a [X] [Y]"))
    (result,) = ask_paraphrases(ask, manual(DIED), n=3, max_rounds=4)
    assert (texts_of(result), len(prompts)) == (("a [X] [Y]",), 4)


def test_paraphrased_a_template_is_no_paraphrase_in_its_relation_and_is_asked_for_in_turn() -> None:
    ask, prompts = answering(
        numbered("[Y] saw [X] die.", "b [X] [Y]"), numbered("b [X] [Y]", "c [X] [Y]")
    )
    results = ask_paraphrases(ask, manual(DIED, "[Y] saw [X] die."), n=1)
    assert texts_of(next(results)) == ("b [X] [Y]",)
    assert len(prompts) == 1
    assert texts_of(next(results)) == ("c [X] [Y]",)
    rows = pl.DataFrame([("P1", "a [X] [Y]"), ("P2", "b [X] [Y]")], schema=MANUAL, orient="row")
    ask, _ = answering(numbered("b [X] [Y]", "a [X] [Y]"))
    texts = [texts_of(paraphrases) for paraphrases in ask_paraphrases(ask, rows, n=1)]
    assert texts == [("b [X] [Y]",), ("a [X] [Y]",)]


def test_paraphrased_number_and_hint_stand_in_the_prompts_of_the_relation() -> None:
    hint = "Be aware that [Y] is the city."
    ask, prompts = answering(numbered("a [X] [Y]"))
    list(ask_paraphrases(ask, manual(DIED), n=1, hints={"P20": hint, "P1": "no"}))
    assert prompts[0].splitlines()[1:] == [hint, DIED]
    assert "given sentence 7 times." in instruction(DIED, n=7)


@given(
    st.lists(
        st.lists(
            st.sampled_from(["a [X] [Y]", "A [X] [Y].", "b [X] [Y]", "[X]", "[X] [X] [Y]", DIED])
        )
    )
)
def test_paraphrased_texts_are_distinct_fit_and_at_most_n(answers: list[list[str]]) -> None:
    result = only(*[numbered(*answer) for answer in answers], "", max_rounds=len(answers) + 1)
    texts = texts_of(result)
    given_texts = {wording(text) for answer in answers for text in answer if has_slots(text)}
    assert len(texts) == min(3, len(given_texts - {wording(DIED)}))
    assert len({wording(text) for text in (*texts, DIED)}) == len(texts) + 1
    assert all(map(has_slots, texts))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Sure! [X] and [Y]:\n- [X] a [Y]\n- [Y] b [X]", ["[X] a [Y]", "[Y] b [X]"]),
        ("(1) [X] a [Y].\n(2) “[X] b [Y].”", ["[X] a [Y].", "[X] b [Y]."]),
        ('1. **[X] a [Y].**\n\n2. "[X] b [Y]."', ["[X] a [Y].", "[X] b [Y]."]),
        ("[X] a [Y].\n\n[X] b [Y].", ["[X] a [Y].", "[X] b [Y]."]),
        ("• [X] a [Y]", ["[X] a [Y]"]),
        ("1776 saw [X] in [Y].", ["1776 saw [X] in [Y]."]),
        (" \n", []),
    ],
)
def test_candidates_read_lists_and_lines(answer: str, expected: list[str]) -> None:
    assert candidates(answer) == expected


OTHER = "Where did [X] die? [Y]."


def sheet(*texts: str, template: str = DIED, min_distance: float = 0.25) -> pl.DataFrame:
    manual = pl.DataFrame([("P20", DIED), ("P20", OTHER)], schema=MANUAL, orient="row")
    rows = [("P20", template, text) for text in texts]
    paraphrases = pl.DataFrame(rows, schema=PARAPHRASES, orient="row")
    return review_sheet(manual, paraphrases, min_distance=min_distance)


@pytest.mark.parametrize(
    ("text", "keep", "reason"),
    [
        ("Life ended for [X] while staying near [Y].", "yes", ""),
        ("[X] died.", "no", "[Y] stands 0 times"),
        ("[X] died in [X].", "no", "[X] stands 2 times; [Y] stands 0 times"),
        ("[x] died in [Y].", "no", "[X] stands 0 times"),
        ("[X] Died in [Y]", "no", "a repetition"),
        (OTHER, "no", "a repetition"),
        ("[X] died in [Y], alas.", "", f"close to: {DIED}"),
        (
            "In which town has life ended for [X]? [Y].",
            "",
            "a question, where the manual template is a statement",
        ),
    ],
)
def test_review_sheet_says_what_is_suspicious(text: str, keep: str, reason: str) -> None:
    assert sheet(text).select("keep", "reason").row(0) == (keep, reason)


def test_review_sheet_later_of_two_close_paraphrases_is_marked() -> None:
    rows = sheet("Life ended for [X] near [Y].", "Life ended for [X] at [Y].", min_distance=0.4)
    assert rows["reason"].to_list() == ["", "close to: Life ended for [X] near [Y]."]
    assert sheet("[Y] [X]", min_distance=0.5)["keep"].item() == "yes"  # at the very distance
    assert sheet("[Y] [X]", min_distance=0.51)["reason"].item() == f"close to: {DIED}"
    unusable = sheet("[X] passed away [X].", "[X] passed away, [Y].")
    assert unusable["keep"].to_list() == ["no", "yes"]


@pytest.mark.parametrize("as_csv", [False, True])
def test_reviewed_gives_what_is_kept_with_its_corrected_text(as_csv: bool) -> None:
    rows = sheet("[X] passed away, [Y].", "[X] died.", "[X] died in [Y], alas.", "[X] left, [Y].")
    corrected = pl.Series("paraphrase", ["a [X] [Y]", "b [Y] [X]", "c [X] [Y]", "d [X] [Y]"])
    decided = rows.with_columns(corrected, keep=pl.Series(["TRUE", "Yes ", "no", "0"]))
    if as_csv:
        decided = pl.read_csv(io.StringIO(decided.write_csv()))
    assert accepted_paraphrases(decided).rows() == [
        ("P20", DIED, "a [X] [Y]"),
        ("P20", DIED, "b [Y] [X]"),
    ]


def test_reviewed_all_yes_gives_the_paraphrases_back() -> None:
    rows = sheet("[X] passed away, [Y].", "[X] left, [Y].").with_columns(keep=pl.lit(True))
    assert accepted_paraphrases(rows).equals(rows.select(list(PARAPHRASES)))
    assert accepted_paraphrases(SHEET.to_frame()).schema == PARAPHRASES


def test_reviewed_unfit_sheet_is_refused_by_the_row_of_a_spreadsheet() -> None:
    undecided = sheet("[X] passed away, [Y].", "[X] died in [Y], alas.").write_csv()
    for rows, words in (
        (pl.read_csv(io.StringIO(undecided)), ["row 3", "''", "'[X]", "write"]),
        (sheet("[X] died.").with_columns(keep=pl.lit("yes")), ["row 2", "'[X] died.'"]),
        (sheet().drop("keep"), ["column keep"]),
    ):
        with pytest.raises(InputError, match=naming(*words)):
            accepted_paraphrases(rows)

"""Asking for paraphrases. The models here are functions that answer from a list."""

from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.construction.paraphrase import (
    MANUAL,
    candidates,
    has_slots,
    instruction,
    paraphrased,
    wording,
)

DIED = "[X] died in [Y]."


def manual(*templates: str) -> pl.DataFrame:
    return pl.DataFrame([("P20", each) for each in templates], schema=MANUAL, orient="row")


def answering(*answers: str) -> tuple[Callable[[str], str], list[str]]:
    """A model that gives these answers in turn, the last one for ever; what it is asked."""
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return answers[min(len(asked), len(answers)) - 1]

    return ask, asked


def texts_of(rows: list[tuple[str, str, str]]) -> tuple[str, ...]:
    return tuple(text for _, _, text in rows)


def only(*answers: str, n: int = 3, **options: int) -> list[tuple[str, str, str]]:
    (result,) = paraphrased(answering(*answers)[0], manual(DIED), n=n, **options)
    return result


def numbered(*texts: str) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))


def test_paraphrased_enough_in_one_answer_asks_once() -> None:
    ask, asked = answering(numbered("a [X] [Y]", "b [X] [Y]", "c [Y] [X]", "d [X] [Y]"))
    (result,) = paraphrased(ask, manual(DIED), n=3)
    assert result == [("P20", DIED, text) for text in ("a [X] [Y]", "b [X] [Y]", "c [Y] [X]")]
    assert len(asked) == 1


def test_paraphrased_repetitions_are_removed_and_asked_again_with_the_same_prompt() -> None:
    ask, asked = answering(
        numbered("a [X] [Y].", "A [X]  [Y] .", "[x]", "[X] died in [Y]"),
        numbered("a [X] [Y].", "b [X] [Y]."),
    )
    (result,) = paraphrased(ask, manual(DIED), n=2)
    assert result == [("P20", DIED, "a [X] [Y]."), ("P20", DIED, "b [X] [Y].")]
    assert asked == [instruction(DIED, n=2)] * 2


def test_paraphrased_a_model_that_repeats_itself_is_given_up() -> None:
    ask, asked = answering(numbered("a [X] [Y]"))
    (result,) = paraphrased(ask, manual(DIED), n=3, max_rounds=4)
    assert (texts_of(result), len(asked)) == (("a [X] [Y]",), 4)


def test_paraphrased_another_manual_template_is_no_paraphrase() -> None:
    ask, _ = answering(
        numbered("[Y] saw [X] die.", "b [X] [Y]"), numbered("b [X] [Y]", "c [X] [Y]")
    )
    first, second = paraphrased(ask, manual(DIED, "[Y] saw [X] die."), n=1)
    assert (texts_of(first), texts_of(second)) == (("b [X] [Y]",), ("c [X] [Y]",))


def test_paraphrased_other_relation_may_say_the_same() -> None:
    rows = pl.DataFrame([("P1", "a [X] [Y]"), ("P2", "b [X] [Y]")], schema=MANUAL, orient="row")
    ask, _ = answering(numbered("b [X] [Y]", "a [X] [Y]"))
    texts = [texts_of(each) for each in paraphrased(ask, rows, n=1)]
    assert texts == [("b [X] [Y]",), ("a [X] [Y]",)]


def test_paraphrased_hint_stands_in_the_prompts_of_its_relation() -> None:
    hint = "Be aware that [Y] is the city."
    ask, asked = answering(numbered("a [X] [Y]"))
    list(paraphrased(ask, manual(DIED), n=1, hints={"P20": hint, "P1": "no"}))
    assert asked[0].splitlines()[1:] == [hint, DIED]


def test_paraphrased_asks_for_a_template_when_its_result_is_wanted() -> None:
    ask, asked = answering(numbered("a [X] [Y]"), numbered("b [X] [Y]"))
    results = paraphrased(ask, manual(DIED, "[Y] saw [X] die."), n=1)
    next(results)
    assert len(asked) == 1


@given(
    st.lists(
        st.lists(
            st.sampled_from(["a [X] [Y]", "A [X] [Y].", "b [X] [Y]", "[X]", "[X] [X] [Y]", DIED])
        )
    )
)
def test_paraphrased_texts_are_distinct_fit_and_at_most_n(answers: list[list[str]]) -> None:
    result = only(*[numbered(*each) for each in answers], "", max_rounds=len(answers) + 1)
    texts = texts_of(result)
    given_texts = {wording(text) for each in answers for text in each if has_slots(text)}
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


def test_instruction_asks_for_as_many_as_are_wanted() -> None:
    assert "given sentence 7 times." in instruction(DIED, n=7)


def test_paraphrased_gives_a_row_for_each_paraphrase() -> None:
    rows = only(numbered("a [X] [Y]", "b [X] [Y]"), max_rounds=1)
    assert rows == [("P20", DIED, "a [X] [Y]"), ("P20", DIED, "b [X] [Y]")]

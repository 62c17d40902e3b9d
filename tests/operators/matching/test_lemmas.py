"""Keys of lemma lists, against a direct reading of "is a contiguous sublist of"."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.matching.lemmas import contains, correct, key, key_length, matches

Lemmas = list[str]

# "a" is a substring of "ab", and lists repeat lemmas.
LEMMAS = st.lists(st.sampled_from(["a", "b", "ab", "ba", "aa"]), max_size=4)
PAIRS = st.lists(st.tuples(LEMMAS | st.none(), LEMMAS | st.none()), max_size=20)


def naive_contains(a: Lemmas | None, b: Lemmas | None) -> bool:
    if not a or not b:
        return False
    return any(a[start : start + len(b)] == b for start in range(len(a)))


def evaluated(pairs: list[tuple[Lemmas | None, Lemmas | None]], expression: pl.Expr) -> list[bool]:
    schema = {"a": pl.List(pl.String), "b": pl.List(pl.String)}
    lists = pl.DataFrame(pairs, schema=schema, orient="row")
    return lists.select(key(pl.col("a")), key(pl.col("b"))).select(expression).to_series().to_list()


@given(PAIRS)
def test_contains_any_lists_equals_naive_sublist(
    pairs: list[tuple[Lemmas | None, Lemmas | None]],
) -> None:
    found = evaluated(pairs, contains(pl.col("a"), pl.col("b")))
    assert found == [naive_contains(a, b) for a, b in pairs]


@given(PAIRS)
def test_matches_any_lists_equals_either_direction(
    pairs: list[tuple[Lemmas | None, Lemmas | None]],
) -> None:
    found = evaluated(pairs, matches(pl.col("a"), pl.col("b")))
    assert found == [naive_contains(a, b) or naive_contains(b, a) for a, b in pairs]


def test_matches_two_empty_answers_is_false() -> None:
    found = evaluated([([], []), (None, None), ([], ["a"])], matches(pl.col("a"), pl.col("b")))
    assert found == [False, False, False]


@given(LEMMAS)
def test_key_length_any_list_counts_its_lemmas(lemmas: Lemmas) -> None:
    frame = pl.DataFrame({"lemmas": [lemmas]}, schema={"lemmas": pl.List(pl.String)})
    assert frame.select(key_length(key(pl.col("lemmas")))).item() == (len(lemmas) or None)


ANSWERS = {"pair_id": pl.String, "key": pl.String}


def key_of(*lemmas: str) -> str | None:
    return "\x1f" + "\x1f".join(lemmas) + "\x1f" if lemmas else None


LABELS = pl.DataFrame(
    {"pair_id": ["t", "t", "u"], "key": [key_of("uk"), key_of("great", "britain"), None]}
)


@pytest.mark.parametrize(
    ("lemmas", "expected"),
    [
        (["the", "uk"], True),
        (["great", "britain"], True),
        (["britain"], False),  # one direction only
        (["great", "old", "britain"], False),
        (["ukraine"], False),
        ([], False),
    ],
)
def test_correct_answer_must_contain_a_label(lemmas: list[str], expected: bool) -> None:
    answers = pl.DataFrame({"pair_id": ["t"], "key": [key_of(*lemmas)]}, schema=ANSWERS)
    assert correct(answers, LABELS)["correct"].to_list() == [expected]


def test_correct_empty_label_is_contained_in_nothing() -> None:
    answers = pl.DataFrame({"pair_id": ["u", "u"], "key": [key_of("uk"), None]})
    assert correct(answers, LABELS)["correct"].to_list() == [False, False]


def test_correct_pair_without_labels_is_false() -> None:
    answers = pl.DataFrame({"pair_id": ["v"], "key": [key_of("uk")]})
    assert correct(answers, LABELS)["correct"].to_list() == [False]


def test_correct_repeated_answers_keep_rows_and_columns() -> None:
    answers = pl.DataFrame(
        {"n": [2, 0, 1], "pair_id": ["t"] * 3, "key": [key_of("uk"), None, key_of("uk")]}
    )
    found = correct(answers, LABELS)
    assert found.drop("correct").equals(answers)
    assert found["correct"].to_list() == [True, False, True]


def test_correct_no_answers_gives_an_empty_boolean() -> None:
    assert correct(pl.DataFrame(schema=ANSWERS), LABELS).schema["correct"] == pl.Boolean

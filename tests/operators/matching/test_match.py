"""Matching keys, against a direct reading of "is a contiguous sublist of"."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from operators.matching.key import key, key_length
from operators.matching.match import contains, matches

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

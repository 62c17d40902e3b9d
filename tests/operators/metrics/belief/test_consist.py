"""Consist, against comparing all prompts of a pair with each other."""

from collections.abc import Callable
from itertools import combinations
from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief import answers as module
from factsweep.operators.metrics.belief.answers import By, consist_terms, match_counts
from tests.operators.metrics.scalars import consist

Key = str | None
Tables = st.SearchStrategy[pl.DataFrame]


def match(a: Key, b: Key) -> bool:
    return a is not None and b is not None and (a in b or b in a)


def equality(a: Key, b: Key) -> bool:
    return a is not None and a == b


def naive(answers: pl.DataFrame, same: Callable[[Key, Key], bool]) -> dict[str, float]:
    pairs = {rows["pair_id"][0]: rows["key"].to_list() for rows in answers.partition_by("pair_id")}
    return {
        pair: mean(same(a, b) for a, b in combinations(keys, 2))
        for pair, keys in pairs.items()
        if len(keys) > 1
    }


@pytest.mark.parametrize(("by", "same"), [("match", match), ("equality", equality)])
@given(data=st.data())
def test_consist_any_answers_equals_all_comparisons(
    by: By, same: Callable[[Key, Key], bool], data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    expected = naive(answers, same)
    assert dict(
        consist_terms(answers, by=by).select("pair_id", "numerator").iter_rows()
    ) == pytest.approx(expected)
    overall = mean(expected.values()) if expected else None
    assert consist(answers, by=by) == pytest.approx(overall)


@given(data=st.data())
def test_consist_tiny_blocks_change_nothing(data: st.DataObject, answer_tables: Tables) -> None:
    answers = data.draw(answer_tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_COMPARISONS_PER_BLOCK", 2)
        blocked = consist(answers)
    assert blocked == consist(answers)


@pytest.mark.parametrize("within", [["template_id"], ["subject_index"], ["template_id", "correct"]])
@given(data=st.data())
def test_match_counts_within_groups_compare_what_agrees(
    within: list[str], data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    expected = {}
    for pair in answers.partition_by("pair_id"):
        compared = [
            match(a["key"], b["key"])
            for a, b in combinations(pair.to_dicts(), 2)
            if all(a[name] == b[name] for name in within)
        ]
        expected[pair["pair_id"][0]] = (sum(compared), len(compared))
    found = match_counts(answers, within=within).drop("relation_id")
    assert {pair: (n, of) for pair, n, of in found.iter_rows()} == expected


def answers_of(*keys: Key) -> pl.DataFrame:
    n = len(keys)
    columns = {"relation_id": ["P1"] * n, "pair_id": ["t"] * n, "key": keys}
    return pl.DataFrame(columns, schema_overrides={"key": pl.String})


def test_consist_equal_answers_is_one() -> None:
    assert consist(answers_of("\x1fa\x1f", "\x1fa\x1f", "\x1fa\x1f")) == 1.0


def test_consist_empty_answers_match_nothing() -> None:
    assert consist(answers_of(None, None, None)) == 0.0


def test_consist_single_prompts_is_none() -> None:
    assert consist(answers_of("\x1fa\x1f")) is None


def test_consist_no_answers_is_none(no_answers: pl.DataFrame) -> None:
    assert consist(no_answers) is None
    assert consist_terms(no_answers).is_empty()

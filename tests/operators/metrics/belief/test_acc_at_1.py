"""Acc@1."""

from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.metrics.scalars import acc_at_1

Tables = st.SearchStrategy[pl.DataFrame]


@given(data=st.data())
def test_acc_at_1_any_answers_equals_mean_of_pair_means(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    pairs = [rows["correct"].to_list() for rows in answers.partition_by("pair_id")]
    expected = mean(map(mean, pairs)) if pairs else None
    assert acc_at_1(answers) == pytest.approx(expected)


def test_acc_at_1_pair_of_many_prompts_weighs_like_any_other() -> None:
    correct = [True, False, False, False, False]
    pairs = ["t1", "t2", "t2", "t2", "t2"]
    answers = pl.DataFrame({"relation_id": ["P1"] * 5, "pair_id": pairs, "correct": correct})
    assert acc_at_1(answers) == 0.5


def test_acc_at_1_no_answers_is_none(no_answers: pl.DataFrame) -> None:
    assert acc_at_1(no_answers) is None

"""Coverage: maximum and oracle."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.metrics.scalars import acc_at_1, coverage_maximum, coverage_oracle

Tables = st.SearchStrategy[pl.DataFrame]


def correct_pairs(answers: pl.DataFrame) -> set[str]:
    return set(answers.filter("correct")["pair_id"])


def naive_maximum(answers: pl.DataFrame) -> float:
    best = sum(
        max(len(correct_pairs(template)) for template in relation.partition_by("template_id"))
        for relation in answers.partition_by("relation_id")
    )
    return best / answers["pair_id"].n_unique()


@given(data=st.data())
def test_coverage_maximum_any_answers_equals_naive_best_templates(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables.filter(len))
    assert coverage_maximum(answers) == pytest.approx(naive_maximum(answers))


@given(data=st.data())
def test_coverage_oracle_any_answers_equals_share_of_known_pairs(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables.filter(len))
    expected = len(correct_pairs(answers)) / answers["pair_id"].n_unique()
    assert coverage_oracle(answers) == pytest.approx(expected)


@given(data=st.data())
def test_coverage_any_answers_maximum_stays_under_oracle(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables.filter(len))
    maximum, oracle = coverage_maximum(answers), coverage_oracle(answers)
    assert maximum is not None
    assert oracle is not None
    assert maximum <= oracle


@given(data=st.data())
def test_coverage_complete_answers_average_stays_under_maximum(
    data: st.DataObject, complete_answer_tables: Tables
) -> None:
    answers = data.draw(complete_answer_tables)
    average, maximum = acc_at_1(answers), coverage_maximum(answers)
    assert average is not None
    assert maximum is not None
    assert average <= maximum + 1e-12


def test_coverage_no_answers_is_none(no_answers: pl.DataFrame) -> None:
    assert coverage_maximum(no_answers) is None
    assert coverage_oracle(no_answers) is None

"""Template spread, against reading it off template by template."""

from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.analyses import template_accuracy
from factsweep.operators.metrics.belief.answers import template_rates
from tests.operators.metrics.analysed import analysed
from tests.operators.metrics.scalars import acc_at_1

Tables = st.SearchStrategy[pl.DataFrame]


def mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def share(rows: pl.DataFrame) -> Fraction:
    return Fraction(int(rows["correct"].sum()), rows.height)


def naive(answers: pl.DataFrame) -> dict[str, list[Fraction]]:
    """For each relation, its templates' accuracies."""
    return {
        relation["relation_id"][0]: [
            mean([share(pair) for pair in template.partition_by("pair_id")])
            for template in relation.partition_by("template_id")
        ]
        for relation in answers.partition_by("relation_id")
    }


def values(rows: pl.DataFrame, part: str | None) -> list[float | None]:
    return rows.filter(pl.col("slice").eq_missing(pl.lit(part)))["value"].to_list()


@given(data=st.data())
def test_template_spread_any_answers_equals_naive_extremes(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables.filter(len))
    found, expected = analysed("template_spread", answers), naive(answers)
    n_pairs = dict(answers.group_by("relation_id").agg(pl.col("pair_id").n_unique()).iter_rows())
    for relation, accuracies in expected.items():
        spread = [min(accuracies), mean(accuracies), max(accuracies)]
        assert values(found, f"relation={relation}") == pytest.approx(spread)
    weighted = [
        sum(n_pairs[r] * pick(accuracies) for r, accuracies in expected.items())
        / sum(n_pairs.values())
        for pick in (min, mean, max)
    ]
    assert values(found, None) == pytest.approx(weighted)


@given(data=st.data())
def test_template_accuracy_any_answers_equals_naive_means(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    found = template_accuracy(template_rates(answers))
    for relation, accuracies in naive(answers).items():
        own = found.filter(relation_id=relation)
        assert sorted(own["accuracy"]) == pytest.approx(sorted(accuracies))
    assert found["n"].sum() == answers.height


@given(data=st.data())
def test_template_accuracy_shuffled_rows_change_nothing(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    shuffled = answers.sample(fraction=1, shuffle=True, seed=3)
    found, expected = (template_accuracy(template_rates(rows)) for rows in (shuffled, answers))
    assert found.equals(expected)


@given(data=st.data())
def test_template_spread_complete_answers_mean_is_acc_at_1(
    data: st.DataObject, complete_answer_tables: Tables
) -> None:
    answers = data.draw(complete_answer_tables)
    assert values(analysed("template_spread", answers), None)[1] == pytest.approx(acc_at_1(answers))


def test_template_spread_failed_prompts_are_counted(no_answers: pl.DataFrame) -> None:
    failed = pl.DataFrame({"relation_id": ["P1"], "n_failed": [4]})
    found = analysed("template_spread", no_answers, n_failed=failed)
    assert found["value"].null_count() == found.height == 6
    assert found["n_failed"].unique().to_list() == [4]

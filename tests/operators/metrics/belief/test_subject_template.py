"""Subject against template, against all subsets of the prompts."""

from itertools import combinations, product
from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.answers import By
from tests.operators.metrics.analysed import analysed
from tests.operators.metrics.scalars import acc_at_1

Tables = st.SearchStrategy[pl.DataFrame]


def found(answers: pl.DataFrame, by: By = "match") -> dict[str, float | None]:
    rows = analysed("subject_template", answers, by=by)
    return dict(rows.filter(pl.col("slice").is_null()).select("metric", "value").iter_rows())


def subset_accuracies(answers: pl.DataFrame, unit: str, factor: str) -> list[float]:
    """The Acc@1 of every subset that holds one value of the factor for each unit."""
    choices = [rows.partition_by(factor) for rows in answers.partition_by(unit)]
    subsets = (pl.concat(subset) for subset in product(*choices))
    return [value for value in map(acc_at_1, subsets) if value is not None]


@given(data=st.data())
def test_subject_template_complete_answers_extremes_are_those_of_all_subsets(
    data: st.DataObject, complete_answer_tables: Tables
) -> None:
    answers = data.draw(complete_answer_tables)
    rows = found(answers)
    for name, unit, factor in (
        ("subject", "pair_id", "subject_index"),
        ("template", "relation_id", "template_id"),
    ):
        accuracies = subset_accuracies(answers, unit, factor)
        assert rows[f"{name}_acc_min"] == pytest.approx(min(accuracies))
        assert rows[f"{name}_acc_max"] == pytest.approx(max(accuracies))


def match(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and (a in b or b in a)


def naive_consist(answers: pl.DataFrame, held: str, varied: str) -> float | None:
    shares = []
    for pair in answers.partition_by("pair_id"):
        hits = [
            match(a["key"], b["key"])
            for a, b in combinations(pair.to_dicts(), 2)
            if a[held] == b[held] and a[varied] != b[varied]
        ]
        if hits:
            shares.append(mean(hits))
    return mean(shares) if shares else None


@given(data=st.data())
def test_subject_template_any_answers_consist_compares_one_factor(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    rows = found(answers)
    by_name = naive_consist(answers, "template_id", "subject_index")
    by_template = naive_consist(answers, "subject_index", "template_id")
    assert rows["subject_consist"] == pytest.approx(by_name)
    assert rows["template_consist"] == pytest.approx(by_template)


@given(data=st.data())
def test_subject_template_one_name_a_pair_has_no_subject_effect(
    data: st.DataObject, complete_answer_tables: Tables
) -> None:
    answers = data.draw(complete_answer_tables).filter(pl.col("subject_index") == 0)
    rows = found(answers)
    assert rows["subject_consist"] is None
    assert rows["subject_acc_min"] == rows["subject_acc_max"] == pytest.approx(acc_at_1(answers))


def test_subject_template_equality_does_not_match_a_part(no_answers: pl.DataFrame) -> None:
    columns = {"relation_id": "P1", "pair_id": "t", "template_id": ["a", "b"], "subject_index": 0}
    keys = ["\x1frome\x1f", "\x1fin\x1frome\x1f"]
    answers = pl.DataFrame({**columns, "key": keys, "n_lemmas": [1, 2], "correct": True})
    assert found(answers)["template_consist"] == 1.0
    assert found(answers, by="equality")["template_consist"] == 0.0
    assert set(found(no_answers).values()) == {None}

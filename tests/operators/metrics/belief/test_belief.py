"""The whole table of BELIEF metrics."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.belief import belief
from factsweep.operators.metrics.belief.calibration import auroc, ece
from factsweep.operators.metrics.shared.rows import ROWS
from tests.operators.metrics.scalars import (
    NONE_FAILED,
    Tables,
    acc_at_1,
    brier,
    consist,
    coverage_maximum,
    coverage_oracle,
    one_word_ratio,
    ovconf,
)

GREEDY = {
    "acc_at_1": acc_at_1,
    "consist": consist,
    "one_word_ratio": one_word_ratio,
    "coverage_maximum": coverage_maximum,
    "coverage_oracle": coverage_oracle,
}
SAMPLED = {"ovconf": ovconf, "ece": ece, "brier": brier, "auroc": auroc}


def table(
    answers: pl.DataFrame,
    calibration: pl.DataFrame | None = None,
    n_failed: pl.DataFrame = NONE_FAILED,
) -> pl.DataFrame:
    return belief(answers, calibration, n_failed, seed=1, n_draws=50, n_rounds=10)


def overall(rows: pl.DataFrame) -> dict[str, float | None]:
    plain = rows.filter(pl.col("variant").is_null(), pl.col("slice").is_null())
    return dict(plain.select("metric", "value").iter_rows())


@given(data=st.data())
def test_belief_values_equal_each_metric_alone_and_relations_those_of_the_relation_alone(
    data: st.DataObject, answer_tables: Tables, calibration_tables: Tables
) -> None:
    answers, calibration = data.draw(answer_tables), data.draw(calibration_tables)
    values = overall(table(answers, calibration))
    expected = {name: metric(answers) for name, metric in GREEDY.items()}
    expected |= {name: metric(calibration) for name, metric in SAMPLED.items()}
    assert {name: values[name] for name in expected} == pytest.approx(expected)
    shuffled = (rows.sample(fraction=1, shuffle=True, seed=3) for rows in (answers, calibration))
    assert table(*shuffled).equals(table(answers, calibration))
    found = table(answers)
    for relation in answers.partition_by("relation_id"):
        part = f"relation={relation['relation_id'][0]}"
        assert found.filter(slice=part).equals(table(relation).filter(slice=part))


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["P0", "P1", "t0", "t1", "a", "b"])])
def test_belief_other_id_types_change_nothing(dtype: pl.DataType) -> None:
    ids = {"relation_id": ["P1", "P0"], "pair_id": ["t1", "t0"], "template_id": ["b", "a"]}
    answers = pl.DataFrame(
        {**ids, "key": ["\x1fa\x1f"] * 2, "n_lemmas": [1, 1], "correct": [True, False]}
    )
    cast = answers.with_columns(pl.col(list(ids)).cast(dtype))
    assert table(cast).equals(table(answers))


def test_belief_failed_relation_without_answers_keeps_its_row(no_answers: pl.DataFrame) -> None:
    n_failed = pl.DataFrame({"relation_id": ["P1"], "n_failed": [4]})
    row = table(no_answers, n_failed=n_failed).row(1, named=True)
    expected = {"slice": "relation=P1", "metric": "acc_at_1", "value": None, "n": 0, "n_failed": 4}
    assert {name: row[name] for name in expected} == expected


def test_belief_calibration_rows_count_the_sampled_prompts(no_answers: pl.DataFrame) -> None:
    columns = {"relation_id": ["P1"], "pair_id": ["t"], "prompt_id": ["p"], "confidence": [0.5]}
    calibration = pl.DataFrame({**columns, "correct": [True]})
    failed = pl.DataFrame({"relation_id": ["P2"], "n_failed": [2]})
    found = belief(no_answers, calibration, NONE_FAILED, seed=1, n_failed_samples=failed)
    counts = found.filter(metric="ovconf").select("slice", "n", "n_failed")
    assert counts.rows() == [(None, 1, 2), ("relation=P1", 1, 0), ("relation=P2", 0, 2)]


def test_belief_fluctuation_is_given_for_both_draws(no_answers: pl.DataFrame) -> None:
    rows = table(no_answers).filter(pl.col("metric").str.starts_with("fluctuation"))
    assert rows.select("variant", "metric").rows() == [
        (None, "fluctuation_range"),
        (None, "fluctuation_sd"),
        ("draw=pair", "fluctuation_range"),
        ("draw=pair", "fluctuation_sd"),
    ]


def test_belief_no_answers_has_null_values_and_the_schema(
    no_answers: pl.DataFrame, no_calibration: pl.DataFrame
) -> None:
    found = table(no_answers, no_calibration)
    assert found.schema == ROWS
    assert found["value"].null_count() == found.height > len(GREEDY) + len(SAMPLED)
    assert found["n"].sum() == 0

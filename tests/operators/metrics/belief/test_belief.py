"""The whole table of BELIEF metrics."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.belief import Options
from factsweep.operators.methods.method import Evidence
from factsweep.operators.metrics.shared.rows import ROWS
from factsweep.operators.schemas import empty
from tests.operators.metrics.scalars import (
    NONE_FAILED,
    RANKED,
    Tables,
    acc_at_1,
    auroc,
    brier,
    consist,
    coverage_maximum,
    coverage_oracle,
    ece,
    one_word_ratio,
    ovconf,
)

MEASURE = METHODS["belief"].measure
FACTS = Facts(empty("relations"), empty("templates"), empty("pairs"))
OPTIONS = Options(n_draws=50, n_rounds=10, n_bins=10, analyses=())
NO_PROMPTS = pl.DataFrame(schema={"prompt_id": pl.String})
GREEDY = {
    "acc_at_1": acc_at_1,
    "consist": consist,
    "one_word_ratio": one_word_ratio,
    "coverage_maximum": coverage_maximum,
    "coverage_oracle": coverage_oracle,
}
SAMPLED = {"ovconf": ovconf, "ece": ece, "brier": brier, "auroc": auroc, **RANKED}


def table(
    answers: pl.DataFrame,
    calibration: pl.DataFrame | None = None,
    n_failed: pl.DataFrame = NONE_FAILED,
    n_failed_samples: pl.DataFrame | None = None,
) -> pl.DataFrame:
    tables = {"answers": answers}
    tables |= {name: empty(name) for name in ("calibration", "confidences")}
    if calibration is not None:
        tables["calibration"] = calibration
        n_failed_samples = NONE_FAILED if n_failed_samples is None else n_failed_samples
    answers = answers.with_columns(prompt_id=pl.lit("", pl.String))
    condensed = MEASURE.condense({**tables, "answers": answers}, NO_PROMPTS, FACTS, OPTIONS)
    evidence = Evidence(FACTS, None, condensed, n_failed, n_failed_samples, None, OPTIONS, seed=1)
    return MEASURE.compute(evidence)["metrics"]


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
    rows_of_all = table(answers)
    for relation in answers.partition_by("relation_id"):
        part = f"relation={relation['relation_id'][0]}"
        assert rows_of_all.filter(slice=part).equals(table(relation).filter(slice=part))


def test_belief_failed_relation_without_answers_keeps_its_row(no_answers: pl.DataFrame) -> None:
    n_failed = pl.DataFrame({"relation_id": ["P1"], "n_failed": [4]})
    row = table(no_answers, n_failed=n_failed).row(1, named=True)
    expected = {"slice": "relation=P1", "metric": "acc_at_1", "value": None, "n": 0, "n_failed": 4}
    assert {name: row[name] for name in expected} == expected


def test_belief_calibration_rows_count_the_sampled_prompts(no_answers: pl.DataFrame) -> None:
    columns = {"relation_id": ["P1"], "pair_id": ["t"], "prompt_id": ["p"], "confidence": [0.5]}
    calibration = pl.DataFrame({**columns, "correct": [True]})
    failed = pl.DataFrame({"relation_id": ["P2"], "n_failed": [2]})
    rows = table(no_answers, calibration, n_failed_samples=failed)
    counts = rows.filter(metric="ovconf").select("slice", "n", "n_failed")
    assert counts.rows() == [(None, 1, 2), ("relation=P1", 1, 0), ("relation=P2", 0, 2)]


def test_belief_no_answers_has_null_values_and_the_schema(
    no_answers: pl.DataFrame, no_calibration: pl.DataFrame
) -> None:
    rows = table(no_answers, no_calibration)
    assert rows.schema == ROWS
    assert rows["value"].null_count() == rows.height > len(GREEDY) + len(SAMPLED)
    assert rows["n"].sum() == 0
    draws = rows.filter(pl.col("metric").str.starts_with("fluctuation"))
    assert draws["variant"].to_list() == [None, None, "draw=pair", "draw=pair"]

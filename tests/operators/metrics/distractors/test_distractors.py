"""The metrics table of a setting: its rows, slices, and facts that are left out."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.distractors.distractors import METRICS, distractors
from factsweep.operators.metrics.shared.rows import deciles


def rows(**changed: list[object]) -> pl.DataFrame:
    """Three facts of two relations: two clozes of `a`, one of `b`, one of `c`."""
    columns = {
        "relation_id": ["P1", "P1", "P1", "P2"],
        "pair_id": ["a", "a", "b", "c"],
        "n_distractors": [2, 2, 1, 2],
        "n_beaten": [[1, 2], [0, 1], [1], [1, 1]],
        "n_tokens": [1, 2, 2, 1],
        "open_logprob": [0.0] * 4,
    }
    kinds = {"n_beaten": pl.List(pl.UInt32), "open_logprob": pl.Float64}
    return pl.DataFrame({**columns, **changed}, schema_overrides=kinds)


def details(values: dict[str, float | None], samples: str = "") -> pl.DataFrame:
    columns = {
        "pair_id": list(values),
        "popularity": list(values.values()),
        "sample": list(samples.ljust(len(values), "S")),
    }
    kinds = {"pair_id": pl.String, "popularity": pl.Float64, "sample": pl.String}
    return pl.DataFrame(columns, schema_overrides=kinds)


def value(table: pl.DataFrame, metric: str, part: str | None = None) -> tuple[float, int, int]:
    row = table.filter(pl.col("slice").eq_missing(pl.lit(part, pl.String)), metric=metric)
    found: tuple[float, int, int] = row.select("value", "n", "n_failed").row(0)
    return found


@pytest.fixture
def table() -> pl.DataFrame:
    known = details({"a": 1.0, "b": 2.0, "c": None, "unasked": 0.0})
    failed = pl.DataFrame({"relation_id": ["P1", "P3"], "n_failed": [2, 5]})
    return distractors(rows(), known, failed, seed=1, n_rounds=20)


def test_fact_with_too_few_distractors_is_left_out_and_counted(table: pl.DataFrame) -> None:
    assert value(table, "min_at_1") == (pytest.approx((0.5 + 1 + 1) / 3), 4, 7)
    assert value(table, "min_at_2") == (pytest.approx((0.5 + 0) / 2), 3, 7)
    assert value(table, "left_out_at_2") == (1.0, 4, 7)
    assert value(table, "left_out_at_1") == (0.0, 4, 7)


def test_numbers_go_as_far_as_some_fact_has_distractors(table: pl.DataFrame) -> None:
    names = set(table["metric"])
    assert {"avg_at_2", "probability"} < names
    assert "avg_at_5" not in names


def test_first_number_is_there_though_no_fact_has_distractors() -> None:
    none = rows(n_distractors=[0] * 4, n_beaten=[[]] * 4)
    table = distractors(none, details({"a": 1.0}), seed=1, n_rounds=20)
    assert value(table, "min_at_1") == (None, 0, 0)
    assert value(table, "left_out_at_1") == (3.0, 4, 0)


def test_probability_is_left_out_where_it_is_not_known() -> None:
    table = distractors(rows(open_logprob=[None] * 4), details({}), seed=1, n_rounds=20)
    assert "probability" not in table["metric"]


def test_relation_has_its_own_numbers_and_failures(table: pl.DataFrame) -> None:
    assert value(table, "avg_at_2", "relation=P1") == (0.75, 2, 2)
    assert value(table, "avg_at_2", "relation=P3") == (None, 0, 5)


def test_popularity_is_ranked_among_the_facts_that_were_asked(table: pl.DataFrame) -> None:
    assert value(table, "min_at_1", "popularity=0") == (0.5, 2, 0)
    assert value(table, "min_at_1", "popularity=5") == (1.0, 1, 0)
    assert not table["slice"].is_in(["popularity=9"]).any()


def test_sample_is_a_slice_where_there_are_several(table: pl.DataFrame) -> None:
    assert not table["slice"].str.starts_with("sample=").any()
    both = details({"a": 1.0, "b": 2.0, "c": 3.0}, "STT")
    found = distractors(rows(), both, seed=1, n_rounds=20)
    assert value(found, "min_at_1", "sample=S") == (0.5, 2, 0)
    assert value(found, "min_at_1", "sample=T") == (1.0, 2, 0)


def test_length_is_that_of_each_answer_in_tokens(table: pl.DataFrame) -> None:
    assert value(table, "min_at_1", "tokens=1") == (1.0, 2, 0)
    assert value(table, "min_at_1", "tokens=2") == (0.5, 2, 0)


def test_intervals_hold_the_value_and_no_count_has_one(table: pl.DataFrame) -> None:
    overall = table.filter(pl.col("slice").is_null())
    counts = pl.col("metric").str.starts_with("left_out")
    assert overall.filter(counts)["ci_low"].is_null().all()
    measured = overall.filter(~counts)
    assert (measured["ci_low"] <= measured["value"]).all()
    assert (measured["value"] <= measured["ci_high"]).all()


def test_every_row_is_of_a_metric_that_is_declared(table: pl.DataFrame) -> None:
    assert set(table["metric"]) <= {metric.name for metric in METRICS}


@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=1, max_size=40))
def test_deciles_rise_with_popularity_and_ties_share_one(values: list[int | None]) -> None:
    known = details({str(i): v if v is None else float(v) for i, v in enumerate(values)})
    found = {int(fact): decile for fact, decile in deciles(known).iter_rows()}
    assert set(found) == {i for i, v in enumerate(values) if v is not None}
    below = {i: sum(o is not None and o < values[i] for o in values) for i in found}  # type: ignore[operator]
    assert found == {i: 10 * below[i] // len(found) for i in found}

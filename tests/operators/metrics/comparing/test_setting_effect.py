"""The effect of a setting, against each metric on the shared prompts."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.metrics.belief.acc_at_1 import acc_at_1
from operators.metrics.belief.consist import consist
from operators.metrics.belief.one_word_ratio import one_word_ratio
from operators.metrics.comparing.setting_effect import EFFECT, setting_effect

Tables = st.SearchStrategy[pl.DataFrame]
METRICS = {"acc_at_1": acc_at_1, "consist": consist, "one_word_ratio": one_word_ratio}


def named(answers: pl.DataFrame) -> pl.DataFrame:
    return answers.with_columns(
        prompt_id=pl.format("{}.{}.{}", "pair_id", "template_id", "subject_index")
    )


def effect(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    return setting_effect(first, second, seed=1, n_rounds=20)


@given(data=st.data())
def test_setting_effect_any_runs_equals_the_metrics_on_shared_prompts(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    found = effect(first, second)
    assert found.schema == EFFECT
    shared = set(first["prompt_id"]) & set(second["prompt_id"])
    relations = sorted({*first["relation_id"], *second["relation_id"]})
    for part in (None, *relations):
        rows = found.filter(
            pl.col("slice").eq_missing(pl.lit(None if part is None else f"relation={part}"))
        )
        sides = [
            run.filter(
                pl.col("prompt_id").is_in(shared), part is None or pl.col("relation_id") == part
            )
            for run in (first, second)
        ]
        for metric, function in METRICS.items():
            (row,) = rows.filter(metric=metric).to_dicts()
            one, other = map(function, sides)
            assert row["first"] == pytest.approx(one)
            assert row["second"] == pytest.approx(other)
            difference = None if one is None or other is None else other - one
            assert row["difference"] == pytest.approx(difference)
            assert row["n"] == sides[0].height


@given(data=st.data())
def test_setting_effect_left_out_prompts_are_counted(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    alone = set(first["prompt_id"]) ^ set(second["prompt_id"])
    overall = effect(first, second).filter(pl.col("slice").is_null())
    assert set(overall["n_left_out"]) == {len(alone)}


@given(data=st.data())
def test_setting_effect_swapped_runs_swap_the_sign(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    there, back = effect(first, second), effect(second, first)
    for name, opposite in (("difference", "difference"), ("ci_low", "ci_high")):
        expected = [None if value is None else -value for value in back[opposite]]
        assert there[name].to_list() == pytest.approx(expected, abs=1e-12)


@given(data=st.data())
def test_setting_effect_of_a_run_on_itself_is_nothing(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = named(data.draw(answer_tables))
    found = effect(answers, answers)
    columns = found.select("difference", "ci_low", "ci_high").unpivot()["value"]
    assert set(columns.drop_nulls()) <= {0.0}


def test_setting_effect_interval_is_that_of_pairs() -> None:
    # Ten pairs of many prompts, half of which change as a whole: the interval knows ten, not 1,000.
    rows = [("P1", f"t{i}", f"{i}.{j}", i % 2 == 0) for i in range(10) for j in range(100)]
    schema = ["relation_id", "pair_id", "prompt_id", "changed"]
    second = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        key=pl.lit("\x1fa\x1f"), n_lemmas=pl.lit(1), correct="changed"
    )
    first = second.with_columns(correct=pl.lit(False))
    row = setting_effect(first, second, seed=1, n_rounds=500).row(0, named=True)
    assert row["difference"] == 0.5
    assert row["ci_high"] - row["ci_low"] > 0.4

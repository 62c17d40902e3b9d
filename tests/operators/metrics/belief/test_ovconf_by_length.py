"""Ovconf by answer length."""

from math import exp
from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.calibration import ovconf_by_length
from tests.operators.metrics.scalars import ovconf

PROMPT = st.tuples(
    st.integers(0, 7), st.one_of(st.none(), st.floats(-9, 0, width=32)), st.booleans()
)
PROMPTS = st.lists(PROMPT, max_size=20)


def tables(prompts: list[tuple[int, float | None, bool]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    ids = [f"p{i}" for i in range(len(prompts))]
    answers = pl.DataFrame(
        {
            "prompt_id": ids,
            "relation_id": [f"P{i % 2}" for i in range(len(prompts))],
            "pair_id": ids,
            "correct": [correct for _, _, correct in prompts],
        },
        schema_overrides=dict.fromkeys(("prompt_id", "relation_id", "pair_id"), pl.String)
        | {"correct": pl.Boolean},
    )
    canary = pl.DataFrame(
        {
            "prompt_id": ids,
            "n_tokens": [n for n, _, _ in prompts],
            "logprob": [logprob for _, logprob, _ in prompts],
        },
        schema={"prompt_id": pl.String, "n_tokens": pl.UInt16, "logprob": pl.Float32},
    )
    return answers, canary


@given(prompts=PROMPTS)
def test_ovconf_by_length_any_prompts_equals_naive_groups(
    prompts: list[tuple[int, float | None, bool]],
) -> None:
    answers, canary = tables(prompts)
    rows = ovconf_by_length(answers, canary, seed=1, n_rounds=5)
    assert rows["slice"].to_list() == [f"tokens={n}" for n in range(1, 6)]
    for n, value, size in zip(range(1, 6), rows["value"], rows["n"], strict=True):
        gaps = [exp(p) - correct for k, p, correct in prompts if k == n and p is not None]
        assert size == len(gaps)
        assert value == pytest.approx(mean(gaps) if gaps else None, abs=1e-6)


@given(prompts=PROMPTS)
def test_ovconf_by_length_group_equals_the_binned_metric(
    prompts: list[tuple[int, float | None, bool]],
) -> None:
    answers, canary = tables(prompts)
    (value,) = ovconf_by_length(answers, canary, longest=1, seed=1, n_rounds=5)["value"]
    group = canary.filter(pl.col("n_tokens") == 1).drop_nulls("logprob")
    confidence = pl.col("logprob").cast(pl.Float64).exp()
    calibration = answers.join(group, on="prompt_id").with_columns(confidence=confidence)
    assert value == pytest.approx(ovconf(calibration))


def test_ovconf_by_length_prompt_without_answer_is_in_no_group() -> None:
    answers, canary = tables([(1, -1.0, True), (1, -1.0, True)])
    rows = ovconf_by_length(answers.head(1), canary, longest=1, seed=1, n_rounds=5)
    assert rows.select("n", "n_failed").row(0) == (1, 0)

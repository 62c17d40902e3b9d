"""How far two scorings lie apart."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.noise import permutation_difference
from factsweep.operators.metrics.shared.rows import ROWS

LOGPROB = st.one_of(
    st.none(), st.floats(-500, 0), st.sampled_from([math.nan, -math.inf]), st.just(-1.0)
)
SCORES = st.dictionaries(st.sampled_from("abcdef"), LOGPROB)


def table(scores: dict[str, float | None]) -> pl.DataFrame:
    schema = {"prompt_id": pl.String, "logprob": pl.Float64}
    return pl.DataFrame(list(scores.items()), schema=schema, orient="row")


def is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


@given(scores=SCORES, scored_again=SCORES)
def test_difference_equals_the_formula(
    scores: dict[str, float | None], scored_again: dict[str, float | None]
) -> None:
    apart = []
    for item, second in scored_again.items():
        first = scores.get(item)
        if first is not None and second is not None and is_number(first) and is_number(second):
            apart.append(abs(first - second))
    difference = permutation_difference(table(scores), table(scored_again))
    assert difference.schema == ROWS
    (row,) = difference.rows(named=True)
    assert row["value"] == (max(apart) if apart else None)
    assert (row["n"], row["n_failed"]) == (len(apart), len(scored_again) - len(apart))
    assert permutation_difference(table(scores), table(scored_again).reverse()).equals(difference)


def test_difference_of_single_precision_is_exact() -> None:
    scores, scored_again = (
        pl.DataFrame({"prompt_id": ["a"], "logprob": [x]}, schema_overrides={"logprob": pl.Float32})
        for x in (-100.0, -100.00001)
    )
    difference = permutation_difference(scores, scored_again)["value"].item()
    assert difference == pytest.approx(2**-17, abs=1e-9)

"""Confidence of a decoder model."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.calibration import confidence

KEYS = st.sampled_from([None, "\x1fa\x1f", "\x1fb\x1f", "\x1fa\x1fb\x1f", "\x1fab\x1f"])
PROMPTS = {"prompt_id": pl.Int64, "key": pl.String}


def match(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and (a in b or b in a)


@given(st.lists(st.tuples(KEYS, st.lists(KEYS, min_size=1, max_size=8)), max_size=5))
def test_confidence_any_samples_equals_share_of_matches(
    prompts: list[tuple[str | None, list[str | None]]],
) -> None:
    greedy = [(i, key) for i, (key, _) in enumerate(prompts)]
    samples = [(i, key) for i, (_, keys) in enumerate(prompts) for key in keys]
    found = confidence(*(pl.DataFrame(rows, PROMPTS, orient="row") for rows in (greedy, samples)))
    expected = [sum(match(g, key) for key in keys) / len(keys) for g, keys in prompts]
    assert found["confidence"].to_list() == pytest.approx(expected)


def test_confidence_prompt_without_samples_is_left_out() -> None:
    greedy = pl.DataFrame({"prompt_id": [1, 2], "key": ["\x1fa\x1f"] * 2}, PROMPTS)
    samples = pl.DataFrame({"prompt_id": [2, 3], "key": ["\x1fa\x1f"] * 2}, PROMPTS)
    assert confidence(greedy, samples).rows() == [(2, 1.0)]


def test_confidence_no_prompts_gives_an_empty_table() -> None:
    empty = pl.DataFrame(schema=PROMPTS)
    assert confidence(empty, empty).schema == {"prompt_id": pl.Int64, "confidence": pl.Float64}

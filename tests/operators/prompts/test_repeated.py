"""Repeated: the first prompt of each text, against a dictionary."""

from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.prompts.expansion import Repeated

texts = st.tuples(st.sampled_from(["", "a", "ab"]), st.sampled_from(["b", "bc", "c", "d"]))


def weak_hash(value: pl.Expr, seed: int, whole: Any = pl.Expr.hash) -> pl.Expr:
    """The other hash of a text as it is; the first is one of few."""
    return whole(value, seed) if seed % 2 else whole(value, seed) % 2


@pytest.mark.parametrize("hashed", [pl.Expr.hash, weak_hash])
@given(batches=st.lists(st.lists(texts, max_size=8), max_size=5))
def test_mark_any_texts_names_the_first_prompt_of_each(
    hashed: Any, batches: list[list[tuple[str, str]]]
) -> None:
    with patch.object(pl.Expr, "hash", hashed):
        assert_first_of_each(batches)


def assert_first_of_each(batches: list[list[tuple[str, str]]]) -> None:
    repeated, first, number = Repeated(), dict[tuple[str, str], str](), 0
    for batch in batches:
        expected = list[str | None]()
        ids = [f"p{number + place}" for place in range(len(batch))]
        number += len(batch)
        for prompt_id, text in zip(ids, batch, strict=True):
            expected.append(first.get(text))
            first.setdefault(text, prompt_id)
        rows = pl.DataFrame(
            {"prompt_id": ids, "context_id": [c for c, _ in batch], "query": [q for _, q in batch]},
            schema=dict.fromkeys(("prompt_id", "context_id", "query"), pl.String),
        )
        assert repeated.mark(rows)["same_as"].to_list() == expected

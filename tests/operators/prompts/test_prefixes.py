"""Shared prefixes, against comparing token by token."""

from itertools import pairwise, takewhile

from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.prompts.tokens import n_shared


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=8))
def test_n_shared_any_ids_equals_naive_comparison(ids: list[list[int]]) -> None:
    def shared(one: list[int], other: list[int]) -> int:
        return len(list(takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False))))

    assert n_shared(ids) == sum(shared(one, other) for one, other in pairwise(ids))

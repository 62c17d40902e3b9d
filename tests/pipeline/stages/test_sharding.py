"""sharding: shards get smaller towards the end, and hold every prompt once."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from factsweep.pipeline.stages.expand import ends, shards

sizes = st.integers(1, 300)


@given(n=st.integers(0, 5000), size=sizes, fewest=sizes)
def test_ends_shards_never_grow_and_are_within_their_bounds(n: int, size: int, fewest: int) -> None:
    found = ends(n, size, fewest)
    lengths = [b - a for a, b in zip([0, *found], found, strict=False)]
    assert sum(lengths) == n
    assert lengths == sorted(lengths, reverse=True)
    assert all(length <= size for length in lengths)
    assert all(length >= min(size, fewest) for length in lengths[:-1])
    for end, length in zip(found, lengths, strict=True):
        assert length <= max(min(size, fewest), min(n // 8, (n - end + length) // 3))


@pytest.mark.parametrize("together", ["prompt_id", "kind"])
@given(runs=st.lists(st.integers(1, 9), min_size=1, max_size=60), size=st.integers(1, 50))
def test_shards_hold_every_prompt_once_and_what_belongs_together(
    together: str, runs: list[int], size: int
) -> None:
    kinds = [kind for kind, n in enumerate(runs) for _ in range(n)]
    prompts = pl.DataFrame({"prompt_id": map(str, range(len(kinds))), "kind": kinds})
    found = list(shards(prompts, together, size, fewest=4))
    assert_frame_equal(pl.concat(found), prompts)
    assert sum(shard[together].n_unique() for shard in found) == prompts[together].n_unique()
    assert all(shard.height < size + (max(runs) if together == "kind" else 1) for shard in found)

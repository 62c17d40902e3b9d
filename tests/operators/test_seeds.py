"""Random numbers that depend on a seed and an id alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from factsweep.operators import seeds


def test_key_of_known_parts_stays_what_it_was() -> None:
    # A changed key would silently change every draw of every run.
    assert seeds.key(0, "P36.Q142") == 6299651240017647368


@given(st.lists(st.text(), min_size=1, max_size=3), st.integers(0, 2**40))
def test_keys_of_ids_equal_each_key(ids: list[str], seed: int) -> None:
    assert seeds.keys(seed, "use", ids).tolist() == [
        seeds.key(seed, "use", row_id) for row_id in ids
    ]


def test_key_parts_do_not_run_together() -> None:
    assert seeds.key("ab", "c") != seeds.key("a", "bc")


@pytest.mark.parametrize("other", [(1, "p", "x"), (0, "q", "x"), (0, "p", "y")])
def test_generator_other_parts_draw_other_numbers(other: tuple[int, str, str]) -> None:
    first = seeds.generator(0, "p", "x").random(4)
    assert (first == seeds.generator(0, "p", "x").random(4)).all()
    assert (first != seeds.generator(*other).random(4)).all()


def test_mix_equals_the_published_splitmix64() -> None:
    # The first outputs of the reference implementation for the states 0 and 1234567.
    indices = seeds.mix(np.array([0, 1234567], dtype=np.uint64))
    assert indices.tolist() == [0xE220A8397B1DCDAF, 6457827717110365317]


rows = st.lists(st.integers(0, 2**64 - 1), max_size=20).map(lambda r: np.array(r, dtype=np.uint64))


@given(rows=rows, count=st.integers(0, 6), spare=st.integers(0, 5))
def test_distinct_indices_any_rows_are_distinct_and_in_range(
    rows: seeds.Keys, count: int, spare: int
) -> None:
    indices = seeds.distinct_indices(rows, count=count, among=count + spare)
    assert indices.shape == (len(rows), count)
    for row in indices.tolist():
        assert len(set(row)) == count
        assert set(row) <= set(range(count + spare))


@given(rows=rows)
def test_distinct_indices_depend_on_their_row_alone(rows: seeds.Keys) -> None:
    joint = seeds.distinct_indices(rows, count=3, among=7)
    single = [seeds.distinct_indices(rows[[i]], count=3, among=7)[0] for i in range(len(rows))]
    assert joint.tolist() == [row.tolist() for row in single]


@pytest.mark.parametrize(("count", "among", "orders"), [(1, 30, 30), (2, 5, 20), (3, 3, 6)])
def test_distinct_indices_of_many_rows_are_uniform(count: int, among: int, orders: int) -> None:
    rows = seeds.keys(0, "uniform", map(str, range(20_000)))
    indices = seeds.distinct_indices(rows, count=count, among=among)
    counts = np.unique(indices, axis=0, return_counts=True)[1]
    assert len(counts) == orders
    assert chisquare(counts).pvalue > 1e-4

"""Paired tests, against scipy, their formulas written out, and each other."""

from collections.abc import Sequence
from itertools import product
from math import asin, comb, pi, sqrt

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, false_discovery_control, permutation_test
from statsmodels.stats import contingency_tables, multitest, proportion

from factsweep.operators.metrics.comparing import comparison
from factsweep.operators.metrics.comparing.comparison import cohens_h, mcnemar, sign_flip

COUNTS = st.integers(0, 60)
CHANGES = st.lists(st.sampled_from([-1.0, -0.5, -0.1, 0.0, 0.0, 0.3, 0.5, 1.0]), max_size=8)
P_VALUES = st.lists(st.none() | st.floats(0, 1), max_size=12)
SHARE = st.floats(0, 1)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    rows = pl.DataFrame({"p": p_values}, {"p": pl.Float64})
    return rows.select(comparison.holm(pl.col("p"))).to_series().to_list()


@given(gained=COUNTS, lost=COUNTS)
def test_mcnemar_exact_equals_scipys_binomial_test(gained: int, lost: int) -> None:
    expected = binomtest(gained, gained + lost).pvalue if gained + lost else 1
    assert mcnemar(gained, lost).exact == pytest.approx(expected)


@given(gained=COUNTS, lost=COUNTS)
def test_mcnemar_mid_p_is_the_formula_of_fagerland(gained: int, lost: int) -> None:
    n, fewer = gained + lost, min(gained, lost)
    likely = [comb(n, k) / 2**n for k in range(fewer + 1)]
    expected = 1 if gained == lost else 2 * sum(likely) - likely[-1]
    assert mcnemar(gained, lost).mid_p == pytest.approx(expected)


@given(gained=COUNTS, lost=COUNTS)
def test_mcnemar_mid_p_is_the_bolder_and_both_are_symmetric(gained: int, lost: int) -> None:
    found = mcnemar(gained, lost)
    assert 0 < found.mid_p <= found.exact <= 1
    assert found == mcnemar(lost, gained)


@given(changes=CHANGES)
def test_sign_flip_few_changes_equals_all_signs_written_out(changes: list[float]) -> None:
    observed = abs(sum(changes))
    sums = [
        abs(sum(sign * change for sign, change in zip(signs, changes, strict=True)))
        for signs in product((-1, 1), repeat=len(changes))
    ]
    tied = [total == pytest.approx(observed, abs=1e-9) for total in sums]
    beyond = [total > observed and not tie for total, tie in zip(sums, tied, strict=True)]
    mid_p = 1 if observed < 1e-9 else (sum(beyond) + sum(tied) / 2) / len(sums)
    assert sign_flip(np.array(changes)) == (pytest.approx(mid_p) if changes else None)


def test_sign_flip_distinct_sums_is_scipys_permutation_test_less_half_a_tie() -> None:
    changes = np.array([0.31, 0.17, -0.05, 0.83, 0.44, -0.29, 0.11])
    theirs = permutation_test(
        (changes,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    found = sign_flip(changes)
    assert found is not None
    assert found + 1 / 2 ** len(changes) == pytest.approx(theirs.pvalue)


@given(gained=st.integers(0, 7), lost=st.integers(0, 7), same=st.integers(0, 5))
def test_sign_flip_of_facts_is_mcnemars_mid_p(gained: int, lost: int, same: int) -> None:
    changes = np.array([1.0] * gained + [-1.0] * lost + [0.0] * same)
    if changes.size:
        assert sign_flip(changes) == pytest.approx(mcnemar(gained, lost).mid_p)


@given(changes=st.lists(st.floats(-1, 1), min_size=15, max_size=16))
def test_sign_flip_many_changes_is_near_the_exact_value(changes: list[float]) -> None:
    moved = np.array([1.0 if change >= 0 else -0.5 for change in changes])
    signs = np.array(list(product((-1.0, 1.0), repeat=len(moved))))
    sums, observed = np.abs(signs @ moved), abs(moved.sum())
    tied = np.abs(sums - observed) < 1e-9
    exact = ((sums > observed) & ~tied).mean() + tied.mean() / 2 if observed > 1e-9 else 1
    assert sign_flip(moved) == pytest.approx(exact, abs=0.03)


@given(changes=CHANGES, times=st.integers(1, 4))
def test_sign_flip_either_direction_is_the_same(changes: list[float], times: int) -> None:
    both = np.array(changes * times)
    assert sign_flip(both) == pytest.approx(sign_flip(-both))


def test_sign_flip_two_equal_changes_prove_nothing() -> None:
    assert sign_flip(np.array([0.5, 0.5])) == 0.25  # a t-test would give 0


def test_sign_flip_nothing_changed_is_one_and_no_facts_is_undefined() -> None:
    assert sign_flip(np.zeros(5)) == 1
    assert sign_flip(np.array([])) is None


@given(p_values=P_VALUES)
def test_holm_any_family_equals_the_definition(p_values: list[float | None]) -> None:
    tested = sorted(p for p in p_values if p is not None)
    m = len(tested)
    steps = [min(1.0, (m - k) * p) for k, p in enumerate(tested)]
    found = holm(p_values)
    for p, adjusted in zip(p_values, found, strict=True):
        if p is None:
            assert adjusted is None
        else:
            assert adjusted == max(steps[: tested.index(p) + tested.count(p)])


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_no_correction_and_bonferronis(p_values: list[float]) -> None:
    found = holm(p_values)
    less = false_discovery_control(p_values)
    for p, adjusted, rate in zip(p_values, found, less, strict=True):
        assert adjusted is not None
        assert max(p, rate) - 1e-12 <= adjusted <= min(1.0, len(p_values) * p)


def test_holm_one_test_needs_no_correction() -> None:
    assert holm([None, 0.03, None]) == [None, 0.03, None]


@given(first=SHARE, second=SHARE)
def test_cohens_h_is_antisymmetric_and_has_the_sign_of_the_change(
    first: float, second: float
) -> None:
    assert cohens_h(first, second) == -cohens_h(second, first)
    assert (second - first) * cohens_h(first, second) >= 0


def test_cohens_h_extremes_and_textbook_value() -> None:
    assert cohens_h(0, 1) == pytest.approx(pi)
    assert cohens_h(1 + 1e-12, 0) == pytest.approx(-pi)
    assert cohens_h(0.45, 0.55) == pytest.approx(2 * asin(sqrt(0.55)) - 2 * asin(sqrt(0.45)))


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_that_of_statsmodels(gained: int, lost: int) -> None:
    theirs = contingency_tables.mcnemar([[5, gained], [lost, 7]], exact=True).pvalue
    assert mcnemar(gained, lost).exact == pytest.approx(theirs)


@pytest.mark.slow
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    theirs = multitest.multipletests(p_values, method="holm")[1]
    assert holm(p_values) == pytest.approx(theirs)


@given(st.floats(0, 1), st.floats(0, 1))
def test_cohens_h_is_that_of_statsmodels(first: float, second: float) -> None:
    theirs = proportion.proportion_effectsize(second, first)
    assert cohens_h(first, second) == pytest.approx(theirs)

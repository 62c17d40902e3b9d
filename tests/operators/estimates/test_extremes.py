"""The best template, the best of all prompts, and each template's accuracy, from a sample."""

from functools import cache

import numpy as np
import pytest
from _simulation import Made, coverage, made_up, truth
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.estimates.crossed import Crossed, FloatArray
from factsweep.operators.estimates.fluctuations.accuracies import accuracies
from factsweep.operators.estimates.fluctuations.beta_binomial import Shape, any_right, fitted, shape
from factsweep.operators.estimates.fluctuations.components import compared, components
from factsweep.operators.estimates.fluctuations.fluctuation import fluctuation_range
from factsweep.operators.estimates.fluctuations.maximum import hits, maximum
from factsweep.operators.estimates.fluctuations.oracle import BRACKET, FAR, oracle


@cache
def small() -> Made:
    return made_up(n_relations=6, n_facts=60, n_templates=15, most_names=2, seed=3)


def sampled(share: float, seed: int = 1) -> tuple[Crossed, FloatArray]:
    sample, said = small().sampled(share, seed)
    return sample, (said == 0).astype(np.float64)


@given(
    alpha=st.floats(0.05, 20), beta=st.floats(0.05, 20), n=st.integers(0, 30), k=st.integers(0, 9)
)
def test_any_right_is_that_of_an_urn(alpha: float, beta: float, n: int, k: int) -> None:
    none = 1.0
    for drawn in range(k, k + n):
        none *= (beta + drawn) / (alpha + beta + drawn)
    found = any_right(Shape(np.array(alpha), np.array(beta)), n, k)
    assert found == pytest.approx(1 - none, abs=1e-9)


def test_beta_binomial_fitted_to_a_sample_has_the_shape_of_the_whole() -> None:
    rng = np.random.default_rng(1)
    right = rng.binomial(40, rng.beta(0.6, 1.2, 20_000))
    of_whole = fitted(np.full(20_000, 40), right)
    of_part = fitted(np.full(20_000, 3), rng.hypergeometric(right, 40 - right, 3))
    assert of_whole is not None
    assert of_part is not None
    assert tuple(shape(of_whole.logits)) == pytest.approx((0.6, 1.2), rel=0.05)
    off = np.abs(of_part.logits - of_whole.logits)
    assert (off < 4 * np.sqrt(np.diag(of_part.covariance))).all()


def test_beta_binomial_of_single_prompts_has_no_fit() -> None:
    assert fitted(np.ones(5, np.int64), np.zeros(5, np.int64)) is None


def test_accuracies_of_the_full_run_are_not_shrunk() -> None:
    sample, correct = sampled(1.0)
    found = components(sample, correct)
    assert found is not None
    for each, known in zip(accuracies(sample, correct, found), small().accuracies, strict=True):
        assert each.shrunk == pytest.approx(known)
        assert each.intervals() == pytest.approx(np.stack([known, known], axis=1))


def test_accuracies_shrunk_are_nearer_to_the_full_run_than_those_fitted() -> None:
    errors: list[FloatArray] = []
    within: list[FloatArray] = []
    for seed in range(20):
        sample, correct = sampled(0.2, seed)
        found = compared(sample, correct)
        assert found is not None
        each = zip(accuracies(sample, correct, found), small().accuracies, strict=True)
        for of, known in each:
            errors.append(np.abs([of.fitted - known, of.shrunk - known]).mean(axis=1))
            low, high = of.intervals().T
            within.append((low <= known) & (known <= high))
    fitted_off, shrunk_off = np.mean(errors, axis=0)
    assert shrunk_off < 0.9 * fitted_off
    assert 0.92 < np.mean(within) < 0.98


def test_maximum_has_less_of_the_winners_curse() -> None:
    share = np.bincount(small().relation) / len(small().relation)
    known = truth(small(), n_draws=10)["coverage_maximum"]
    naive, found = [], []
    for seed in range(12):
        sample, correct = sampled(0.35, seed)
        split = compared(sample, correct)
        assert split is not None
        means = np.concatenate([each.shrunk for each in accuracies(sample, correct, split)])
        cells = hits(sample, correct, means)
        assert cells is not None
        of_cells = compared(*cells)
        assert of_cells is not None
        best = [each.fitted.max() for each in accuracies(*cells, of_cells)]
        naive.append(share @ best - known)
        value = maximum(sample, correct, seed=1).value
        assert value is not None
        found.append(value - known)
    assert np.mean(naive) > 0.01
    assert abs(np.mean(found)) < np.mean(naive)


@pytest.mark.slow
def test_template_chosen_is_what_the_choice_gives_for_facts_without_a_part_in_it() -> None:
    found = coverage(small(), 0.3, n_samples=40).filter(metric="template_chosen")
    ((covered, bias),) = found.select("covered", "bias_in_sd").rows()
    assert covered >= 0.9
    assert abs(bias) < 0.4


def test_maximum_without_two_names_of_a_fact_says_why_there_is_none() -> None:
    sample, correct = sampled(0.7)
    _, first = np.unique(sample.fact_template[1], return_index=True)
    fewer = Crossed(
        sample.relation,
        sample.n_names,
        sample.n_templates,
        sample.fact[first],
        sample.template[first],
        sample.name[first],
    )
    found = maximum(fewer, correct[first], seed=1)
    assert found.value is None
    assert "under two of its names" in str(found.why)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_oracle_bracket_holds_the_full_run_and_narrows(share: float) -> None:
    known = truth(small(), n_draws=10)["coverage_oracle"]
    value, low, high, why = oracle(*sampled(share), seed=1)
    assert value is None
    assert why == (BRACKET if share >= 0.2 else FAR)
    assert low is not None
    assert high is not None
    assert low <= known <= high
    wider = oracle(*sampled(share / 2), seed=1)
    assert wider.full_low is not None
    assert wider.full_low < low


def test_oracle_of_a_model_that_is_never_right_is_small() -> None:
    sample, correct = sampled(0.3)
    _, low, high, _ = oracle(sample, np.zeros_like(correct), seed=1)
    assert low == 0
    assert high is not None
    assert high < 0.05


def test_range_of_a_sample_is_near_that_of_the_full_run() -> None:
    known = truth(small())["fluctuation_range"]
    ids = small().relation_ids
    found = [
        fluctuation_range(*sampled(0.3, seed), ids, n_draws=50_000, seed=1) for seed in range(10)
    ]
    middle = np.mean([each.value for each in found if each.value is not None])
    assert middle == pytest.approx(known, rel=0.15)

"""Estimates from a sample of prompts."""

from functools import cache
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from _simulation import Made, coverage, estimated, everything, made_up
from hypothesis import assume, given
from hypothesis import strategies as st

from factsweep.operators.estimates.crossed import CrossedSample
from factsweep.operators.estimates.means import (
    ONCE,
    between_facts,
    moments_of,
    n_matching,
    variance_of_share,
)
from factsweep.operators.estimates.table import ESTIMATES, estimates, fluctuation_sd, index_answers
from factsweep.operators.metrics.belief.answers import fluctuation, match_counts
from tests.operators.metrics.scalars import acc_at_1, consist, one_word_ratio

Tables = st.SearchStrategy[pl.DataFrame]


@given(data=st.data())
def test_estimates_of_the_full_run_are_its_numbers(
    data: st.DataObject, complete_answer_tables: Tables
) -> None:
    answers = data.draw(complete_answer_tables.filter(len))
    table = estimates(index_answers(everything(answers), answers), seed=1, n_draws=100)
    assert table.schema == ESTIMATES
    assert table["share"].to_list() == [1.0] * table.height
    value = dict(table.select("metric", "value").iter_rows())
    assert value["acc_at_1"] == pytest.approx(acc_at_1(answers))
    assert value["one_word_ratio"] == pytest.approx(one_word_ratio(answers))
    expected = consist(answers)
    assert value["consist"] == (None if expected is None else pytest.approx(expected))
    full_draws = fluctuation(answers, draw="template", n_draws=100, seed=1)
    assert value["fluctuation_sd"] == full_draws.sd
    for low, high, middle in table.select("full_low", "full_high", "value").iter_rows():
        assert low == high == middle


@given(data=st.data())
def test_n_matching_sums_to_twice_the_matching_pairs(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    assert n_matching(answers).sum() == 2 * match_counts(answers)["n_matches"].sum()


@cache
def small() -> Made:
    return made_up(n_relations=10, n_facts=30, n_templates=12, most_names=2, seed=2)


def test_estimates_fluctuation_of_the_full_run_is_that_of_its_draws() -> None:
    answers = small().answers()
    full_draws = fluctuation(answers, draw="template", n_draws=50_000, seed=1)
    all_of_it = index_answers(everything(answers), answers)
    table = fluctuation_sd(all_of_it.sample, all_of_it.correct)
    assert table.value == pytest.approx(full_draws.sd, rel=0.02)


def test_estimates_one_prompt_per_fact_has_no_interval() -> None:
    answers = small().answers().unique("pair_id", keep="first", maintain_order=True)
    table = estimates(index_answers(everything(small().answers()), answers), seed=1).rows_by_key(
        "metric", named=True
    )
    (accuracy,) = table["acc_at_1"]
    assert (accuracy["full_low"], accuracy["why"]) == (None, ONCE)
    (spread,) = table["fluctuation_sd"]
    assert spread["value"] is None
    assert spread["why"]


@given(data=st.data())
def test_intervals_of_shares_of_few_prompts_are_shares(
    data: st.DataObject, complete_answer_tables: Tables
) -> None:
    answers = data.draw(complete_answer_tables.filter(len))
    is_kept = data.draw(st.lists(st.booleans(), min_size=len(answers), max_size=len(answers)))
    part = answers.filter(pl.Series(is_kept)).filter(
        pl.len().over("pair_id") > 1
    )  # as a budget asks
    assume(len(part))
    table = estimates(index_answers(everything(answers), part), seed=1, n_rounds=2, n_draws=10)
    shares = table.filter(pl.col("metric") != "fluctuation_sd").drop_nulls("full_low")
    assert shares.filter((pl.col("full_low") < 0) | (pl.col("full_high") > 1)).is_empty(), shares


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_intervals_of_the_full_run_cover_it(share: float) -> None:
    table = coverage(small(), share, n_samples=100)
    # A metric that only some samples can estimate is estimated by unusual samples.
    table = table.filter(pl.col("n") == 100)
    assert table.filter(pl.col("covered") < 0.9).is_empty(), table
    assert table.filter(pl.col("bias_in_sd").abs() > 0.4).is_empty(), table


def test_intervals_shrink_with_the_budget_to_nothing() -> None:
    halves = [
        coverage(small(), share, n_samples=3).filter(metric="acc_at_1")["half_width"].item()
        for share in (0.05, 0.2, 0.8, 1.0)
    ]
    assert halves == sorted(halves, reverse=True)
    assert halves[-1] == 0
    assert np.isfinite(halves).all()


@pytest.mark.parametrize("answer", [0, 5])
def test_intervals_of_samples_that_are_all_alike_have_a_width(answer: int) -> None:
    everyone = small().answers_of
    alike = Made(tuple(np.full_like(part, answer) for part in everyone), small().n_names_of)
    for share in (0.02, 0.1, 0.3):
        sample, answers = alike.sampled(share, 1)
        table = estimated(sample, answers)
        for metric in ("acc_at_1", "one_word_ratio", "consist"):
            value, low, high, _ = table[metric]
            assert value == (0.0 if answer and metric != "consist" else 1.0)
            assert low is not None
            assert high is not None
            assert 0 < high - low < 0.3
            assert low <= value <= high


def test_variance_between_facts_of_unequal_weight_is_without_bias() -> None:
    rng = np.random.default_rng(1)
    zeros, names = np.zeros(40, np.int64), np.array([1, 1, 1, 12] * 10)
    fact = np.repeat(np.arange(8), 2)
    sample = CrossedSample(
        zeros, names, np.array([20]), fact, np.arange(16), np.zeros(16, np.int64)
    )
    share = sample.n_prompts / sample.n_prompts.sum()
    table = [between_facts(sample, rng.normal(size=40), share)[0] for _ in range(4000)]
    part = share[:8] / share[:8].sum()
    assert np.mean(table) == pytest.approx((1 - 8 / 40) * (part**2).sum(), rel=0.05)


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_consist_variance_is_that_over_all_samples_of_a_fact(n: int) -> None:
    fact_answers = np.array([0, 0, 0, 1, 1, 2, 3])

    def matches(answers: np.ndarray) -> np.ndarray:
        return (answers[:, None] == answers).sum(axis=1) - 1.0

    zeros, size = np.zeros(len(fact_answers), np.int64), np.array([len(fact_answers)])
    full_sample = CrossedSample(
        zeros[:1], zeros[:1] + 1, size, zeros, np.arange(len(fact_answers)), zeros
    )
    samples = [
        fact_answers[list(sample_rows)] for sample_rows in combinations(range(len(fact_answers)), n)
    ]
    shares = [matches(sample_rows).sum() / (n * (n - 1)) for sample_rows in samples]
    table = variance_of_share(
        moments_of(full_sample, matches(fact_answers)),
        np.array([float(n)]),
        size * 1.0,
        np.array([True]),
    )
    assert table[0] == pytest.approx(np.var(shares))

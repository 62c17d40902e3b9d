"""Earlier answers narrow an estimate and keep it right."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from _simulated_control import Known, gains, later, two_models
from _simulation import Made, Sizes, everything, made_up, truth
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.estimates.control import PARTS, Control, controlled_mean, controls, parts
from factsweep.operators.estimates.crossed import CrossedSample, FloatArray
from factsweep.operators.estimates.means import estimate_mean
from factsweep.operators.estimates.table import estimates, index_answers

SIZES = Sizes(n_relations=8, n_facts=30, n_templates=12, most_names=2)


@cache
def small() -> Made:
    return made_up(n_relations=8, n_facts=30, n_templates=12, most_names=2, seed=2)


def named(data: Made) -> pl.DataFrame:
    """The answers of a run with the ids of prompts."""
    ids = pl.format("{}.{}.{}", "pair_id", "template_id", "subject_index")
    return data.answers().with_columns(prompt_id=ids)


@given(seed=st.integers(0, 10_000), n_names=st.integers(1, 3))
def test_parts_are_the_means_of_levels_that_are_left(seed: int, n_names: int) -> None:
    score = np.random.default_rng(seed).normal(size=(4, 3, n_names))
    fact, template, name = (index.ravel() for index in np.indices(score.shape))
    split = parts(fact, template, name, score.ravel()).reshape(*score.shape, len(PARTS))
    of_fact = score.mean((1, 2), keepdims=True)
    of_cell, of_name = score.mean(2, keepdims=True), score.mean(1, keepdims=True)
    of_template = (of_cell - of_fact).mean(0, keepdims=True)
    expected = (
        np.broadcast_to(of_cell - of_fact - of_template, score.shape),
        np.broadcast_to(of_name - of_fact, score.shape),
        score - of_cell - of_name + of_fact,
    )
    np.testing.assert_allclose(split, np.stack(expected, axis=3), atol=1e-12)
    np.testing.assert_allclose(split.sum((1, 2)), 0, atol=1e-12)


def test_control_read_from_answers_is_that_of_the_numbers() -> None:
    data, earlier = two_models(SIZES, seed=2, alike=0.8)
    sample, _ = data.sampled(0.2, 1)
    number = np.arange(len(sample.fact))
    answers = pl.DataFrame(
        {
            "pair_id": [f"t{f:06d}" for f in sample.fact],
            "relation_id": [f"P{r}" for r in sample.cell_relation],
            "template_id": [
                f"P{r}.{t:03d}" for r, t in zip(sample.cell_relation, sample.template, strict=True)
            ],
            "subject_index": sample.name,
            "number": number,
        }
    ).with_columns(prompt_id=pl.format("{}.{}.{}", "pair_id", "template_id", "subject_index"))
    control_answers = named(earlier)
    read = controls(
        everything(control_answers), answers, lambda r: control_answers.filter(relation_id=r)
    )
    control = read["acc_at_1"]
    expected = Known(earlier).of(sample)
    np.testing.assert_allclose(control.means, expected.means)
    np.testing.assert_allclose(control.within, expected.within, atol=1e-6)
    assert control.is_whole.all()


def test_control_of_facts_that_it_did_not_answer_as_a_whole_says_nothing_of_them() -> None:
    control_answers = named(small())
    part = control_answers.filter(pl.col("prompt_id") != "t000000.P0.000.0")
    read = controls(
        everything(control_answers), control_answers, lambda r: part.filter(relation_id=r)
    )
    control = read["acc_at_1"]
    assert control.is_whole.tolist() == [False] + [True] * (len(control.is_whole) - 1)
    is_of_fact = control_answers["pair_id"].to_numpy() == "t000000"
    assert not control.within[is_of_fact].any()
    assert control.within[~is_of_fact].any()
    first = control_answers.filter(pl.col("relation_id") == "P0", pl.col("pair_id") != "t000000")
    of_others = first.group_by("pair_id").agg(pl.mean("correct"))["correct"].mean()
    assert control.means[0] == pytest.approx(of_others)


def answered(share: float, seed: int) -> tuple[CrossedSample, FloatArray]:
    sample, answers = small().sampled(share, seed)
    return sample, (answers == 0).astype(np.float64)


def useless(sample: CrossedSample, seed: int) -> Control:
    rng = np.random.default_rng(seed)
    within = rng.normal(size=(len(sample.fact), len(PARTS)))
    return Control(rng.random(sample.n_facts), within, np.ones(sample.n_facts, np.bool_))


@pytest.mark.parametrize("share", [0.03, 0.1, 0.4])
def test_controlled_mean_is_that_of_its_facts(share: float) -> None:
    sample, right = answered(share, 1)
    weights = sample.n_prompts.astype(np.float64)
    control = Known(later(small(), 0.05, 1)).of(sample)
    controlled = controlled_mean(sample, right, weights, control, seed=1)
    if sample.is_asked.all():
        assert controlled.estimate.value == pytest.approx(
            controlled.by_fact @ weights / weights.sum()
        )
    assert controlled.n_effective is not None
    assert controlled.n_effective > 2 * len(sample.fact)


def test_controlled_mean_of_all_prompts_is_theirs_exactly() -> None:
    sample, right = answered(1.0, 1)
    everyone = np.ones(sample.n_facts)
    estimate = controlled_mean(sample, right, everyone, useless(sample, 1), seed=1).estimate
    value = estimate_mean(sample, right, everyone).value
    assert estimate[:3] == (value, value, value)
    assert value == pytest.approx(truth(small())["acc_at_1"])


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.03, 0.1])
def test_useless_control_costs_next_to_nothing(share: float) -> None:
    values = []
    for seed in range(80):
        sample, right = answered(share, seed)
        everyone, control = np.ones(sample.n_facts), useless(sample, seed)
        with_it = controlled_mean(sample, right, everyone, control, seed=seed)
        values.append((with_it.estimate.value, estimate_mean(sample, right, everyone).value))
    with_it, without = np.array(values).T
    assert with_it.std() < 1.03 * without.std()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.03, 0.1])
def test_intervals_with_a_control_cover_the_full_run(share: float) -> None:
    (row,) = gains(small(), later(small(), 0.05, 1), (share,), n_samples=100).to_dicts()
    assert row["covered"] >= 0.9, row
    assert abs(row["bias_in_sd"]) < 0.4, row
    assert row["gain"] > 3, row


def test_control_that_was_never_wrong_leaves_the_rule_of_three() -> None:
    sample, right = answered(0.1, 1)
    control = Known(small()).of(sample)
    estimate = controlled_mean(sample, right, np.ones(sample.n_facts), control, seed=1).estimate
    value, low, high = estimate[:3]
    assert None not in (value, low, high)
    assert value == pytest.approx(truth(small())["acc_at_1"], abs=0.005)
    assert (high - low) / 2 > 2.8 / len(right)


def asked_ids(sample: CrossedSample) -> list[str]:
    """The ids of a sample's prompts, as `named` has them."""
    places = (sample.fact, sample.cell_relation, sample.template, sample.name)
    return [f"t{f:06d}.P{r}.{t:03d}.{n}" for f, r, t, n in zip(*places, strict=True)]


def test_estimates_with_a_control_narrow_the_means() -> None:
    answers, earlier = named(small()), named(later(small(), 0.05, 1))
    sample, _ = small().sampled(0.2, 1)
    ids = asked_ids(sample)
    pairs, part = everything(answers), answers.filter(pl.col("prompt_id").is_in(ids))
    control = controls(pairs, part, lambda r: earlier.filter(relation_id=r))
    rows = index_answers(pairs, part)
    tables = [estimates(rows, seed=1, n_rounds=20, control=each) for each in (None, control)]
    width = pl.col("full_high") - pl.col("full_low")
    without, controlled = (each.select("metric", "n_effective", width=width) for each in tables)
    ratio = controlled["width"] / without["width"]
    means = controlled["metric"].is_in(["acc_at_1", "one_word_ratio"])
    assert ratio.filter(means).max() < 0.7
    assert controlled["n_effective"].is_not_null().to_list() == means.to_list()
    assert tables[0].filter(~means).equals(tables[1].filter(~means))
    assert without["n_effective"].null_count() == without.height


def test_interval_of_other_facts_holds_that_of_these_where_nothing_is_right() -> None:
    sample, _ = small().sampled(0.2, 1)
    answers = named(small())
    part = answers.filter(pl.col("prompt_id").is_in(asked_ids(sample)))
    wrong = part.with_columns(correct=pl.lit(value=False))
    rows = estimates(index_answers(everything(answers), wrong), seed=1, n_rounds=20)
    ends = rows.filter(metric="acc_at_1").select("ci_low", "full_low", "full_high", "ci_high")
    assert list(ends.row(0)) == sorted(ends.row(0))
    assert ends["ci_high"].item() > 0

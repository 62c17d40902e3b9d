"""Earlier answers narrow an estimate and keep it right; so do paired answers a difference."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from _simulated_control import Known, gains, later, two_models
from _simulation import Made, Sizes, everything, made_up, truth
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.estimates.control import PARTS, Control, controlled_mean, controls, parts
from factsweep.operators.estimates.crossed import Crossed, FloatArray
from factsweep.operators.estimates.means import measured, weighted_mean
from factsweep.operators.estimates.table import (
    controls_of,
    estimates,
    mean_difference,
    paired,
    scored,
)
from factsweep.operators.metrics.comparing import verdict

SIZES = Sizes(n_relations=8, n_facts=30, n_templates=12, most_names=2)


@cache
def small() -> Made:
    return made_up(n_relations=8, n_facts=30, n_templates=12, most_names=2, seed=2)


def named(made: Made) -> pl.DataFrame:
    """The answers of a run with the ids of prompts."""
    ids = pl.format("{}.{}.{}", "pair_id", "template_id", "subject_index")
    return made.answers().with_columns(prompt_id=ids)


@given(seed=st.integers(0, 10_000), n_names=st.integers(1, 3))
def test_parts_are_the_means_of_levels_that_are_left(seed: int, n_names: int) -> None:
    score = np.random.default_rng(seed).normal(size=(4, 3, n_names))
    fact, template, name = (each.ravel() for each in np.indices(score.shape))
    found = parts(fact, template, name, score.ravel()).reshape(*score.shape, len(PARTS))
    of_fact = score.mean((1, 2), keepdims=True)
    of_cell, of_name = score.mean(2, keepdims=True), score.mean(1, keepdims=True)
    of_template = (of_cell - of_fact).mean(0, keepdims=True)
    expected = (
        np.broadcast_to(of_cell - of_fact - of_template, score.shape),
        np.broadcast_to(of_name - of_fact, score.shape),
        score - of_cell - of_name + of_fact,
    )
    np.testing.assert_allclose(found, np.stack(expected, axis=3), atol=1e-12)
    np.testing.assert_allclose(found.sum((1, 2)), 0, atol=1e-12)


def test_control_read_from_answers_is_that_of_the_numbers() -> None:
    made, earlier = two_models(SIZES, seed=2, alike=0.8)
    sample, _ = made.sampled(0.2, 1)
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
    known = named(earlier)
    found = controls(
        everything(known), answers, lambda r: known.filter(relation_id=r), {"": pl.col("correct")}
    )[""]
    expected = Known(earlier).of(sample)
    np.testing.assert_allclose(found.means, expected.means)
    np.testing.assert_allclose(found.within, expected.within, atol=1e-6)
    assert found.whole.all()


def test_control_of_facts_that_it_did_not_answer_as_a_whole_says_nothing_of_them() -> None:
    known = named(small())
    part = known.filter(pl.col("prompt_id") != "t000000.P0.000.0")
    found = controls(
        everything(known), known, lambda r: part.filter(relation_id=r), {"": pl.col("correct")}
    )[""]
    assert found.whole.tolist() == [False] + [True] * (len(found.whole) - 1)
    mine = known["pair_id"].to_numpy() == "t000000"
    assert not found.within[mine].any()
    assert found.within[~mine].any()
    first = known.filter(pl.col("relation_id") == "P0", pl.col("pair_id") != "t000000")
    of_others = first.group_by("pair_id").agg(pl.mean("correct"))["correct"].mean()
    assert found.means[0] == pytest.approx(of_others)


def answered(share: float, seed: int) -> tuple[Crossed, FloatArray]:
    sample, said = small().sampled(share, seed)
    return sample, (said == 0).astype(np.float64)


def useless(sample: Crossed, seed: int) -> Control:
    rng = np.random.default_rng(seed)
    within = rng.normal(size=(len(sample.fact), len(PARTS)))
    return Control(rng.random(sample.n_facts), within, np.ones(sample.n_facts, np.bool_))


@pytest.mark.parametrize("share", [0.03, 0.1, 0.4])
def test_controlled_mean_is_that_of_its_facts(share: float) -> None:
    sample, right = answered(share, 1)
    weights = sample.n_prompts.astype(np.float64)
    control = Known(later(small(), 0.05, 1)).of(sample)
    found = controlled_mean(sample, right, weights, control, seed=1)
    if sample.is_asked.all():
        assert found.found.value == pytest.approx(found.by_fact @ weights / weights.sum())
    assert found.n_effective is not None
    assert found.n_effective > 2 * len(sample.fact)


def test_controlled_mean_of_all_prompts_is_theirs_exactly() -> None:
    sample, right = answered(1.0, 1)
    everyone = np.ones(sample.n_facts)
    found = controlled_mean(sample, right, everyone, useless(sample, 1), seed=1).found
    value = measured(sample, right, everyone).value
    assert found[:3] == (value, value, value)
    assert value == pytest.approx(truth(small())["acc_at_1"])


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.03, 0.1])
def test_useless_control_costs_next_to_nothing(share: float) -> None:
    values = []
    for seed in range(80):
        sample, right = answered(share, seed)
        everyone, control = np.ones(sample.n_facts), useless(sample, seed)
        with_it = controlled_mean(sample, right, everyone, control, seed=seed)
        values.append((with_it.found.value, measured(sample, right, everyone).value))
    with_it, without = np.array(values).T
    assert with_it.std() < 1.03 * without.std()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.03, 0.1])
def test_intervals_with_a_control_cover_the_full_run(share: float) -> None:
    (found,) = gains(small(), later(small(), 0.05, 1), (share,), n_samples=100).to_dicts()
    assert found["covered"] >= 0.9, found
    assert abs(found["bias_in_sd"]) < 0.4, found
    assert found["gain"] > 3, found


def test_control_that_was_never_wrong_leaves_the_rule_of_three() -> None:
    sample, right = answered(0.1, 1)
    same = Known(small()).of(sample)
    found = controlled_mean(sample, right, np.ones(sample.n_facts), same, seed=1).found
    value, low, high = found[:3]
    assert None not in (value, low, high)
    assert value == pytest.approx(truth(small())["acc_at_1"], abs=0.005)
    assert (high - low) / 2 > 2.8 / len(right)


def asked_ids(sample: Crossed) -> list[str]:
    """The ids of a sample's prompts, as `named` has them."""
    places = (sample.fact, sample.cell_relation, sample.template, sample.name)
    return [f"t{f:06d}.P{r}.{t:03d}.{n}" for f, r, t, n in zip(*places, strict=True)]


def test_estimates_with_a_control_narrow_the_means() -> None:
    answers, earlier = named(small()), named(later(small(), 0.05, 1))
    sample, _ = small().sampled(0.2, 1)
    ids = asked_ids(sample)
    pairs, part = everything(answers), answers.filter(pl.col("prompt_id").is_in(ids))
    control = controls_of(pairs, part, lambda r: earlier.filter(relation_id=r))
    rows = scored(pairs, part)
    both = [estimates(rows, seed=1, n_rounds=20, control=each) for each in (None, control)]
    width = pl.col("full_high") - pl.col("full_low")
    without, found = (each.select("metric", "n_effective", width=width) for each in both)
    ratio = found["width"] / without["width"]
    means = found["metric"].is_in(["acc_at_1", "one_word_ratio"])
    assert ratio.filter(means).max() < 0.7
    assert found["n_effective"].is_not_null().to_list() == means.to_list()
    assert both[0].filter(~means).equals(both[1].filter(~means))
    assert without["n_effective"].null_count() == without.height


def test_interval_of_other_facts_holds_that_of_these_where_nothing_is_right() -> None:
    sample, _ = small().sampled(0.2, 1)
    answers = named(small())
    part = answers.filter(pl.col("prompt_id").is_in(asked_ids(sample)))
    wrong = part.with_columns(correct=pl.lit(value=False))
    rows = estimates(scored(everything(answers), wrong), seed=1, n_rounds=20)
    ends = rows.filter(metric="acc_at_1").select("ci_low", "full_low", "full_high", "ci_high")
    assert list(ends.row(0)) == sorted(ends.row(0))
    assert ends["ci_high"].item() > 0


@cache
def models() -> tuple[Made, Made]:
    return two_models(SIZES, seed=2, alike=0.8)


def seen(share: float, seed: int) -> tuple[verdict.Known, verdict.Known]:
    """The difference by pairs, and by the two estimates alone."""
    (sample, one), (_, other) = (made.sampled(share, seed) for made in models())
    right = [(said == 0).astype(np.float64) for said in (one, other)]
    weights = np.ones(sample.n_facts)
    found = mean_difference(sample, right[1] - right[0], weights)
    assert found is not None
    alone = [verdict.Known(*map(float, weighted_mean(sample, each, weights)[:3])) for each in right]  # type: ignore[arg-type]
    return verdict.Known(*found), verdict.difference(*alone)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "narrower"), [(0.03, 0.75), (0.1, 0.92), (0.4, 0.98)])
def test_paired_differences_cover_the_full_runs_and_are_narrower(
    share: float, narrower: float
) -> None:
    known = truth(models()[1])["acc_at_1"] - truth(models()[0])["acc_at_1"]
    found, alone = zip(*(seen(share, seed) for seed in range(100)), strict=True)
    assert np.mean([each.low <= known <= each.high for each in found]) >= 0.9
    width, wide = (float(np.mean([e.high - e.low for e in each])) for each in (found, alone))
    assert width < narrower * wide
    assert [each.value for each in found] == pytest.approx([each.value for each in alone])


def test_paired_of_answers_leaves_out_what_one_has_not_answered() -> None:
    first = models()[0]
    one, other = map(named, (first, later(first, 0.1, 1)))
    pairs = everything(one)
    row = paired(pairs, one, other.sample(fraction=1.0, shuffle=True, seed=1)).row(0)
    value = truth(later(first, 0.1, 1))["acc_at_1"] - truth(first)["acc_at_1"]
    assert row == ("acc_at_1", *(pytest.approx(value),) * 3)
    _, value, low, high = paired(pairs, one.sample(fraction=0.5, seed=1), other).row(0)
    assert low < value < high
    assert all(paired(pairs, one.head(n), other).is_empty() for n in (0, 1))  # of one: no interval

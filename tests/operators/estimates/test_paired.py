"""Two samples of the same prompts: the difference of the full runs, from paired answers."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from _simulated_control import later, two_models
from _simulation import Made, Sizes

from factsweep.operators.estimates.means import weighted_mean
from factsweep.operators.estimates.paired import mean_difference, paired
from factsweep.operators.metrics.comparing.verdict import Known, difference

SIZES = Sizes(n_relations=8, n_facts=30, n_templates=12, most_names=2)


@cache
def models() -> tuple[Made, Made]:
    return two_models(SIZES, seed=2, alike=0.8)


def accuracy(made: Made) -> float:
    means = [float(each.mean()) for each in made.accuracies]
    return float(np.average(means, weights=[len(names) for names in made.n_names_of]))


def seen(share: float, seed: int) -> tuple[Known, Known]:
    """The difference by pairs, and by the two estimates alone."""
    (sample, one), (_, other) = (made.sampled(share, seed) for made in models())
    right = [(said == 0).astype(np.float64) for said in (one, other)]
    weights = np.ones(sample.n_facts)
    found = mean_difference(sample, right[1] - right[0], weights)
    assert found is not None
    alone = [Known(*map(float, weighted_mean(sample, each, weights)[:3])) for each in right]  # type: ignore[arg-type]
    return Known(*found), difference(*alone)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "narrower"), [(0.03, 0.75), (0.1, 0.92), (0.4, 0.98)])
def test_paired_differences_cover_the_full_runs_and_are_narrower(
    share: float, narrower: float
) -> None:
    truth = accuracy(models()[1]) - accuracy(models()[0])
    found, alone = zip(*(seen(share, seed) for seed in range(100)), strict=True)
    assert np.mean([each.low <= truth <= each.high for each in found]) >= 0.9
    width, wide = (float(np.mean([e.high - e.low for e in each])) for each in (found, alone))
    assert width < narrower * wide
    assert [each.value for each in found] == pytest.approx([each.value for each in alone])


def test_paired_of_answers_leaves_out_what_one_has_not_answered() -> None:
    first = models()[0]
    ids = pl.format("{}.{}.{}", "pair_id", "template_id", "subject_index")
    one, other = (m.answers().with_columns(prompt_id=ids) for m in (first, later(first, 0.1, 1)))
    pairs = one.group_by("relation_id", "pair_id").agg(
        n_names=pl.col("subject_index").n_unique(), n_templates=pl.col("template_id").n_unique()
    )
    row = paired(pairs, one, other.sample(fraction=1.0, shuffle=True, seed=1)).row(0)
    value = accuracy(later(first, 0.1, 1)) - accuracy(first)
    assert row == ("acc_at_1", *(pytest.approx(value),) * 3)
    _, value, low, high = paired(pairs, one.sample(fraction=0.5, seed=1), other).row(0)
    assert low < value < high
    assert all(paired(pairs, one.head(n), other).is_empty() for n in (0, 1))  # of one: no interval

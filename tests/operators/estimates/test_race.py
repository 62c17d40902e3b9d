"""A race of made-up models: how often its ranks are wrong, and what it asks."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from _simulated_control import later
from _simulation import Made, Sizes, made_up

from factsweep.operators.estimates.paired import mean_difference
from factsweep.operators.estimates.race import Better, error_of_each, shares, undecided

SIZES = Sizes(n_relations=3, n_facts=60, n_templates=12, most_names=2)
SHARES = (0.6, 0.3, 0.05, 0.04, 0.0)  # of the answers that were changed: two are nearly alike
FIRST = 0.05


def accuracy(made: Made) -> float:
    means = [float(each.mean()) for each in made.accuracies]
    return float(np.average(means, weights=[len(names) for names in made.n_names_of]))


def race(models: list[Made], seed: int, error: float) -> tuple[Better, float, bool]:
    """Which was told to be better, the mean share that was asked, and whether any look erred."""
    looks, n = shares(FIRST), len(models)
    each = error_of_each(error, n, 1, len(looks) - 1)
    truth = [accuracy(made) for made in models]
    better, asked, erred = np.zeros((n, n), np.bool_), np.full(n, FIRST), False
    for share, more in pairwise(looks):
        left = undecided(better, None)
        said = {i: models[i].sampled(share, seed) for i in left}
        for i, j in combinations(left, 2):
            sample = said[i][0]
            apart = (said[i][1] == 0).astype(float) - (said[j][1] == 0)
            found = mean_difference(sample, apart, np.ones(sample.n_facts), each)
            assert found is not None
            better[i, j], better[j, i] = found[1] > 0, found[2] < 0
            erred |= bool(better[i, j] and truth[i] <= truth[j])
            erred |= bool(better[j, i] and truth[j] <= truth[i])
        left = undecided(better, None)
        asked[left] = more
    return better, float(asked.mean()), erred


@pytest.mark.slow
def test_ranks_are_rarely_wrong_and_those_that_are_close_are_asked_most() -> None:
    best = made_up(**SIZES._asdict(), seed=2)
    alike = [later(best, 0.05, seed=i) for i in range(4)]
    erred = [race(alike, seed, error=0.2)[2] for seed in range(60)]
    assert sum(erred) <= 0.2 * 60  # of models that differ by .01 at most
    models = [later(best, share, seed=i) for i, share in enumerate(SHARES)]
    found = [race(models, seed, error=0.05) for seed in range(20)]
    assert not any(erred for *_, erred in found)
    assert all(better[4, :2].all() and better[1, 0] for better, *_ in found)
    assert np.mean([asked for _, asked, _ in found]) < 0.7


def test_who_is_undecided() -> None:
    better = np.zeros((4, 4), np.bool_)
    assert undecided(better, None) == undecided(better, 2) == [0, 1, 2, 3]
    better[0, 1:] = better[1:3, 3] = True  # 0 is best, 3 worst, 1 and 2 are not told apart
    assert undecided(better, None) == undecided(better, 2) == [1, 2]
    assert undecided(better, 1) == undecided(better, 3) == []
    assert undecided(better, 4) == undecided(better, 9) == []

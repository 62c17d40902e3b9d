"""How often 95 % intervals of other facts cover the known mean, where relations have few facts.

Draws the accuracies of facts from a beta distribution whose mean is known, a few for each of some
relations, and asks the bootstrap of the metrics for an interval of their mean. It also prints
what plain percentiles give of a bootstrap that takes as many facts as there are.

    python benchmarks/bench_intervals.py [--samples 2000]

With `--band` it draws small studies, several runs over the same facts, and counts how often all
runs lie in the simultaneous band. The alternative is the plain sup-t band, value ± quantile · SD.

    python benchmarks/bench_intervals.py --band
"""

import argparse
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from factsweep.operators.metrics.comparing.curve import band
from factsweep.operators.metrics.shared.bootstrap import estimate, resampled_sums, weight_blocks
from factsweep.operators.seeds import generator

_ALPHA, _BETA = 0.4, 0.8
_N_ROUNDS = 400
_FACT, _FACT_IN_RUN = 1.5, 0.6  # SDs of how hard a fact is, on the probit scale


class Study(NamedTuple):
    """A small study: the runs' known values, and how much each is asked."""

    values: tuple[float, ...]
    n_relations: int
    n_facts: int  # per relation
    n_prompts: int  # per fact


_TRAINING = (0.002, 0.005, 0.01, 0.1, 0.45, 0.75, 0.87)
_STUDIES = (
    Study(_TRAINING, 4, 8, 20),
    Study(_TRAINING, 10, 30, 5),
    Study((0.03, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9), 4, 8, 1),
    Study((0.3, 0.5, 0.5, 0.8), 6, 40, 1),
    Study((0.3, 0.5, 0.7), 3, 5, 3),
    Study((0.003, 0.013, 0.5, 0.8), 6, 5, 1),
    Study((0.5, 0.99, 0.997), 4, 20, 1),
    Study(tuple(np.linspace(0.05, 0.9, 16)), 5, 12, 4),
)


def main() -> None:
    """Draw, resample, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--band", action="store_true", help="simultaneous bands of studies")
    args = parser.parse_args()
    if args.band:
        _bands(args.samples)
        return
    print("| facts per relation | relations | covers | plain percentiles |")
    print("| --- | --- | --- | --- |")
    for n_facts in (5, 10, 30):
        for n_relations in (1, 8):
            shares = [_covered(n_facts, n_relations, args.samples, plain=p) for p in (False, True)]
            print(f"| {n_facts} | {n_relations} | {shares[0]:.1%} | {shares[1]:.1%} |", flush=True)


def _covered(n_facts: int, n_relations: int, n_samples: int, *, plain: bool) -> float:
    """The share of samples whose interval covers the known mean."""
    rng = generator("bench_intervals", n_facts, n_relations)
    true_mean = _ALPHA / (_ALPHA + _BETA)
    inside = 0
    for sample in range(n_samples):
        facts = rng.beta(_ALPHA, _BETA, (n_relations, n_facts, 1))
        sums = [
            _sums(fact_shares, sample, str(r), plain=plain) for r, fact_shares in enumerate(facts)
        ]
        degrees = None if plain else n_relations * (n_facts - 1)
        _, low, high = estimate(np.sum(sums, axis=0).ravel() / (n_facts * n_relations), degrees)
        assert low is not None
        assert high is not None
        inside += low <= true_mean <= high
    return inside / n_samples


def _sums(
    facts: NDArray[np.float64], seed: int, relation: str, *, plain: bool
) -> NDArray[np.float64]:
    if not plain:
        return resampled_sums(facts, seed, relation, _N_ROUNDS)
    blocks = weight_blocks(len(facts), generator(seed, "bootstrap", relation), _N_ROUNDS)
    return np.concatenate([weights @ facts for weights in blocks])


def _bands(n_samples: int) -> None:
    """One row per kind of study: how often all runs lie in the band, and in the plain one."""
    print("| runs | relations × facts × prompts | all in the band | mean width | plain | width |")
    print("| --- | --- | --- | --- | --- | --- |")
    for study in _STUDIES:
        true_values = np.array(study.values)
        bands = np.array([_both_bands(study, sample) for sample in range(n_samples)])
        low, high = bands[:, :, 0], bands[:, :, 1]
        inside = (
            ((low <= true_values + 1e-12) & (true_values - 1e-12 <= high)).all(axis=2).mean(axis=0)
        )
        width = (high - low).mean(axis=(0, 2))
        sizes = f"{study.n_relations} × {study.n_facts} × {study.n_prompts}"
        cells = (f"{inside[n]:.1%} | {width[n]:.3f}" for n in range(2))
        print(f"| {len(true_values)} | {sizes} | {' | '.join(cells)} |", flush=True)


def _both_bands(study: Study, sample: int) -> NDArray[np.float64]:
    """The band and the plain one of a study that is drawn: 2 × ends × runs."""
    rng = generator("bench_intervals", "band", *study[1:], sample)
    n_facts, shape = study.n_relations * study.n_facts, (study.n_relations, study.n_facts)
    hardness = rng.normal(0, _FACT, (*shape, 1))
    hardness = hardness + rng.normal(0, _FACT_IN_RUN, (*shape, len(study.values)))
    ability = ndtri(study.values) * np.sqrt(1 + _FACT**2 + _FACT_IN_RUN**2)
    shares = rng.binomial(study.n_prompts, ndtr(ability - hardness)) / study.n_prompts
    sums = [
        resampled_sums(relation_shares, sample, str(r), _N_ROUNDS)
        for r, relation_shares in enumerate(shares)
    ]
    rounds = np.sum(sums, axis=0) / n_facts
    deviations, sd = rounds[1:] - rounds[0], rounds[1:].std(axis=0)
    largest = np.abs(deviations / np.where(sd > 0, sd, np.inf)).max(axis=1)
    reach = np.quantile(largest, 0.95) * sd
    ends = band(rounds, n_facts - study.n_relations, n_facts)
    return np.array([ends, (rounds[0] - reach, rounds[0] + reach)])


if __name__ == "__main__":
    main()

"""How often 95 % intervals of other facts cover the known mean, where relations have few facts.

Draws the accuracies of facts from a beta distribution whose mean is known, a few for each of some
relations, and asks the bootstrap of the metrics for an interval of their mean. Beside it stands
what plain percentiles give of a bootstrap that takes as many facts as there are.

    python benchmarks/bench_intervals.py [--samples 2000]
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from factsweep.operators.metrics.shared.bootstrap import estimate, resampled_sums, weight_blocks
from factsweep.operators.seeds import generator

_ALPHA, _BETA = 0.4, 0.8
_N_ROUNDS = 400


def main() -> None:
    """Draw, resample, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2000)
    given = parser.parse_args()
    print("| facts per relation | relations | covers | plain percentiles |")
    print("| --- | --- | --- | --- |")
    for n_facts in (5, 10, 30):
        for n_relations in (1, 8):
            shares = [_covered(n_facts, n_relations, given.samples, plain=p) for p in (False, True)]
            print(f"| {n_facts} | {n_relations} | {shares[0]:.1%} | {shares[1]:.1%} |", flush=True)


def _covered(n_facts: int, n_relations: int, n_samples: int, *, plain: bool) -> float:
    """The share of samples whose interval covers the known mean."""
    rng = generator("bench_intervals", n_facts, n_relations)
    known = _ALPHA / (_ALPHA + _BETA)
    inside = 0
    for sample in range(n_samples):
        facts = rng.beta(_ALPHA, _BETA, (n_relations, n_facts, 1))
        sums = [_sums(each, sample, str(r), plain=plain) for r, each in enumerate(facts)]
        degrees = None if plain else n_relations * (n_facts - 1)
        _, low, high = estimate(np.sum(sums, axis=0).ravel() / (n_facts * n_relations), degrees)
        assert low is not None
        assert high is not None
        inside += low <= known <= high
    return inside / n_samples


def _sums(
    facts: NDArray[np.float64], seed: int, relation: str, *, plain: bool
) -> NDArray[np.float64]:
    if not plain:
        return resampled_sums(facts, seed, relation, _N_ROUNDS)
    blocks = weight_blocks(len(facts), generator(seed, "bootstrap", relation), _N_ROUNDS)
    return np.concatenate([weights @ facts for weights in blocks])


if __name__ == "__main__":
    main()

"""How often the fluctuation's interval covers where names matter and go with accuracy.

Fourteen sets of random sizes are made up, in which facts with many names are known better, or
names decide much. Of each, samples are drawn at four budgets.

With `--answers` sets are drawn in which templates have 2 to 20 answers on average, and the interval
is taken below the fewest that the estimate asks for, too.
"""

import argparse
from itertools import pairwise

import numpy as np
from _simulation import LIKE, Logits, Made, Sizes, drawn_answers, drawn_logit, popular, truth

from factsweep.operators.estimates import table
from factsweep.operators.estimates.table import fluctuation_sd
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas

_LOGITS = (*LIKE.values(), Logits(), Logits(-2, 1, 2, 6, 0.5, 0.3), Logits(0, 0.5, 1, 1, 0.1, 0.1))
_BINS = (2, 3, 4, 5, 6, 8, 10, 15, 21)  # answers per template
SHARES = (0.03, 0.1, 0.3, 0.7)


def drawn(number: int) -> Made:
    """One of the sets."""
    rng = np.random.default_rng(number)
    sizes = Sizes(*(int(rng.integers(*ends)) for ends in ((1, 7), (15, 150), (5, 60), (2, 12))))
    spread = ((-2, 2), (0, 1), (0.5, 4), (0.3, 2), (0, 2), (0, 4))
    logits = Logits(*(rng.uniform(*ends) for ends in spread))
    with_names = rng.uniform(0, 2)
    return popular(sizes, number, logits, with_names=with_names, all_names=number % 3 == 0)


def main() -> None:
    """Print, for each budget, how many intervals cover, and on which side the others miss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--answers", type=int, metavar="SETS", help="sets for each number of them")
    args = parser.parse_args()
    n_samples = args.samples
    if args.answers:
        by_answers(args.answers, n_samples)
        return
    sets = [drawn(number) for number in range(14)]
    true_sds = [truth(model)["fluctuation_sd"] for model in sets]
    print("share   intervals   covered   too high   too low   null")
    for share in SHARES:
        covered = high = low = null = 0
        for model, value in zip(sets, true_sds, strict=True):
            for seed in range(n_samples):
                sample, answers = model.sampled(share, seed)
                estimate = fluctuation_sd(sample, (answers == 0).astype(np.float64))
                if estimate.full_low is None or estimate.full_high is None:
                    null += 1
                    continue
                covered += estimate.full_low <= value <= estimate.full_high
                high += value < estimate.full_low
                low += value > estimate.full_high
        n = covered + high + low
        print(f"{share:5.0%} {n:11,} {covered / max(1, n):9.1%} {high:10} {low:9} {null:6}")


@single_threaded_blas()
def by_answers(n_sets: int, n_samples: int) -> None:
    """Print, by answers per template, how many intervals cover where there is no fewest."""
    table._FEWEST = 0.0
    print("| answers per template | intervals | covered | too high | too low | null |")
    print("| --- | --- | --- | --- | --- | --- |")
    rng = np.random.default_rng(0)
    for first, last in pairwise(_BINS):
        counts = np.zeros(4, np.int64)  # covered, too high, too low, null
        for _ in range(n_sets):
            model, share = _of_answers(rng, rng.uniform(first, last))
            true_sd = truth(model, n_draws=10)["fluctuation_sd"]
            for seed in range(n_samples):
                sample, answers = model.sampled(share, seed)
                _, low, high, _ = fluctuation_sd(sample, (answers == 0).astype(np.float64))
                if low is None or high is None:
                    counts[3] += 1
                else:
                    counts[[low <= true_sd <= high, true_sd < low, true_sd > high].index(True)] += 1
        n = max(1, counts[:3].sum())
        shares = " | ".join(f"{count / n:.1%}" for count in counts[:3])
        print(f"| {first} to {last} | {n:,} | {shares} | {counts[3]:,} |", flush=True)


def _of_answers(rng: np.random.Generator, n_answers: float) -> tuple[Made, float]:
    """A set of many relations, and the share of its prompts that gives so many per template."""
    while True:
        n_templates, per_fact = rng.choice([10, 20, 50, 100]), rng.choice([3, 6, 12, 20])
        n_facts = round(n_answers * n_templates / per_fact)
        # Enough for all templates to be compared.
        if n_facts >= 3 and per_fact < n_templates and n_facts * (per_fact - 1) > 1.6 * n_templates:
            break
    logits, names = _LOGITS[rng.integers(len(_LOGITS))], np.ones(n_facts, np.int64)
    shape = (n_facts, int(n_templates), 1)
    relations = [
        drawn_answers(rng, drawn_logit(rng, shape, logits), names)
        for _ in range(rng.choice([12, 41]))
    ]
    return Made(*zip(*relations, strict=True)), per_fact / n_templates


if __name__ == "__main__":
    main()

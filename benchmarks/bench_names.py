"""How often the fluctuation's interval covers where names matter and go with accuracy.

Fourteen sets of random sizes are made up, in which facts with many names are known better, or
names decide much. Of each, samples are drawn at four budgets.
"""

import argparse

import numpy as np
from _simulation import Logits, Made, Sizes, popular, truth

from factsweep.operators.estimates.fluctuations.fluctuation import fluctuation_sd

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
    n_samples = parser.parse_args().samples
    sets = [drawn(number) for number in range(14)]
    known = [truth(made)["fluctuation_sd"] for made in sets]
    print("share   intervals   covered   too high   too low   null")
    for share in SHARES:
        covered = high = low = null = 0
        for made, value in zip(sets, known, strict=True):
            for seed in range(n_samples):
                sample, said = made.sampled(share, seed)
                found = fluctuation_sd(sample, (said == 0).astype(np.float64))
                if found.full_low is None or found.full_high is None:
                    null += 1
                    continue
                covered += found.full_low <= value <= found.full_high
                high += value < found.full_low
                low += value > found.full_high
        n = covered + high + low
        print(f"{share:5.0%} {n:11,} {covered / max(1, n):9.1%} {high:10} {low:9} {null:6}")


if __name__ == "__main__":
    main()

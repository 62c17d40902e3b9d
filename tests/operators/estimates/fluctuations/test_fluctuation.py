"""The fluctuation's SD from a sample, where names matter and go with accuracy."""

import numpy as np
import pytest
from _simulation import Made, drawn_answers, truth

from factsweep.operators.estimates.fluctuations.fluctuation import fluctuation_sd


def made_up(names: str, *, name: float, template: float, with_names: float, seed: int) -> Made:
    """Three relations whose facts have up to six names.

    `name` and `template` are standard deviations of log-odds. `with_names` is how far the log-odds
    and the templates' effects grow with the number of a fact's names, as with popularity.
    """
    rng = np.random.default_rng(seed)
    relations = []
    for _ in range(3):
        n = int(60 * rng.uniform(0.6, 1.4)) + 2
        n_names = np.full(n, 6) if names == "all" else rng.integers(1, 7, n)
        popular = ((n_names - 3.5) / 1.7)[:, None, None]
        effects = rng.normal(0, template, (1, 20, 1)) * (1 + with_names / 2 * popular.clip(-1, 1))
        logit = rng.normal(-0.5, 1.5, (n, 1, 1)) + with_names * popular + effects
        logit = logit + rng.normal(0, 0.5, (n, 20, 1)) + rng.normal(0, name, (n, 1, 6))
        relations.append(drawn_answers(rng, logit, n_names))
    return Made(*zip(*relations, strict=True))


def test_fluctuation_sd_is_without_bias_and_covered_where_names_matter(
    subtests: pytest.Subtests,
) -> None:
    cases = {
        "each fact has six names, which matter": ("all", 4.0, 0.3, 0.0),
        "facts with many names are known better": ("some", 1.0, 1.0, 1.0),
    }
    for what, (names, name, template, with_names) in cases.items():
        made = made_up(names, name=name, template=template, with_names=with_names, seed=1)
        known = truth(made, n_draws=10)["fluctuation_sd"]
        for share in (0.3, 0.6):
            samples = (made.sampled(share, seed) for seed in range(40))
            found = [fluctuation_sd(each, (said == 0).astype(float)) for each, said in samples]
            values = np.array([each.value for each in found])
            covered = np.mean([low <= known <= high for _, low, high, _ in found])
            with subtests.test(what, share=share):
                error = (values.mean() - known) / values.std() * np.sqrt(len(values))
                assert abs(error) < 3.5
                assert covered >= 0.85

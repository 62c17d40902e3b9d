"""The fluctuation's SD from a sample, where names matter and go with accuracy."""

import numpy as np
import pytest
from _simulation import Logits, Sizes, popular, truth

from factsweep.operators.estimates.fluctuations.fluctuation import fluctuation_sd


def test_fluctuation_sd_is_without_bias_and_covered_where_names_matter(
    subtests: pytest.Subtests,
) -> None:
    sizes = Sizes(n_relations=3, n_facts=60, n_templates=20, most_names=6)
    matter = Logits(fact=1.5, template=0.3, fact_template=0.5, name=4.0)
    known_better = Logits(fact=1.5, template=1.0, fact_template=0.5, name=1.0)
    cases = {
        "each fact has six names, which matter": popular(
            sizes, 1, matter, with_names=0.0, all_names=True
        ),
        "facts with many names are known better": popular(sizes, 1, known_better, with_names=1.0),
    }
    for what, made in cases.items():
        known = truth(made)["fluctuation_sd"]
        for share in (0.3, 0.6):
            samples = (made.sampled(share, seed) for seed in range(40))
            found = [fluctuation_sd(each, (said == 0).astype(float)) for each, said in samples]
            values = np.array([each.value for each in found])
            covered = np.mean([low <= known <= high for _, low, high, _ in found])
            with subtests.test(what, share=share):
                error = (values.mean() - known) / values.std() * np.sqrt(len(values))
                assert abs(error) < 3.5
                assert covered >= 0.85

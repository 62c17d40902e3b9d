"""How templates of a relation are told from the noise of its answers."""

import numpy as np
import pytest
from _simulation import Logits, Sizes, popular

from factsweep.operators.estimates.fluctuations.templates import FEW, fitted


def test_noise_of_a_single_relation_is_its_own_however_few_its_degrees() -> None:
    sizes = Sizes(n_relations=1, n_facts=8, n_templates=4, most_names=1)
    made = popular(
        sizes, 1, Logits(fact=1.0, template=1.0, fact_template=1.0, name=0.0), with_names=0.0
    )
    sample, said = made.sampled(0.6, 1)
    found = fitted(sample, (said == 0).astype(np.float64))
    assert found is not None
    assert 0 < found.degrees < FEW
    assert found.residual == pytest.approx([found.each[0].squares / found.degrees])

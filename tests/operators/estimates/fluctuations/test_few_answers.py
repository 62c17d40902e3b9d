"""The fluctuation's SD where templates have few answers."""

import re

import numpy as np
import pytest
from _simulation import Logits, Made, drawn_answers, drawn_logit

from factsweep.operators.estimates.fluctuations.fluctuation import (
    APART,
    answers_per_template,
    fluctuation_sd,
)


def made(*n_facts: int, n_templates: int = 20) -> Made:
    """Relations with so many facts each, of one name."""
    rng = np.random.default_rng(1)
    relations = [
        drawn_answers(rng, drawn_logit(rng, (n, n_templates, 1), Logits()), np.ones(n, np.int64))
        for n in n_facts
    ]
    return Made(*zip(*relations, strict=True))


@pytest.mark.parametrize("sizes", [(10, 10), (10, 30), (7, 20, 40), (100, 4)])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.15, 0.3])
def test_sd_of_few_answers_is_null_with_the_budget_that_gives_it(
    sizes: tuple[int, ...], share: float
) -> None:
    full = made(*sizes)
    sample, said = full.sampled(share, 0)
    correct = (said == 0).astype(float)
    value, low, high, why = fluctuation_sd(sample, correct)
    if answers_per_template(sample) >= 6:
        assert (value is None) == (why == APART)
        return
    assert (value, low, high) == (None, None, None)
    assert why is not None
    (percent,) = re.findall(r"; ask budget=([\d.]+)%$", why)
    enough, _ = full.sampled(float(percent) / 100, 0)
    assert answers_per_template(enough) >= 6
    assert enough.is_asked.all()
    fewer, _ = full.sampled(0.9 * float(percent) / 100, 0)
    assert answers_per_template(fewer) < 6 or not (fewer.n_asked >= 2).all()


def test_sd_that_no_budget_gives_says_that_all_prompts_do() -> None:
    few = made(5, 5)
    sample, said = few.sampled(0.5, 0)
    why = fluctuation_sd(sample, (said == 0).astype(float)).why or ""
    assert why.endswith("; only all prompts give it")
    everything, said = few.sampled(1.0, 0)
    assert fluctuation_sd(everything, (said == 0).astype(float)).value is not None

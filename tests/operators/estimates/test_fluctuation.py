"""The fluctuation's SD from a sample: where names matter, and where templates have few answers."""

import re

import numpy as np
import pytest
from _simulation import Logits, Made, Sizes, drawn_answers, drawn_logit, popular, truth

from factsweep.operators.estimates.components import FEW, components, noise
from factsweep.operators.estimates.fluctuation import APART, answers_per_template, fluctuation_sd


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


def test_noise_of_a_single_relation_is_its_own_however_few_its_degrees() -> None:
    sizes = Sizes(n_relations=1, n_facts=8, n_templates=4, most_names=1)
    made = popular(
        sizes, 1, Logits(fact=1.0, template=1.0, fact_template=1.0, name=0.0), with_names=0.0
    )
    sample, said = made.sampled(0.6, 1)
    found = components(sample, (said == 0).astype(np.float64))
    assert found is not None
    assert 0 < found.degrees < FEW
    assert found.residual == pytest.approx([found.fits[0].squares / found.degrees])


def test_noise_of_templates_is_each_ones_own_where_degrees_are_enough() -> None:
    sizes = Sizes(n_relations=1, n_facts=60, n_templates=5, most_names=1)
    sample, said = popular(sizes, 1, Logits(), with_names=0.0).sampled(0.6, 1)
    found = components(sample, (said == 0).astype(np.float64))
    assert found is not None
    (fit,) = found.fits
    assert fit.degrees > FEW
    left = noise(sample, found, 0)
    assert 0 < np.trace(left) < np.trace(fit.sandwich)
    np.testing.assert_allclose(left / np.trace(left), fit.sandwich / np.trace(fit.sandwich))

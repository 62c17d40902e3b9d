"""The fluctuation's SD from a sample: where names matter, and where templates have few answers."""

import re

import numpy as np
import pytest
from _simulation import Logits, Made, Sizes, drawn_answers, drawn_logit, popular, truth

from factsweep.operators.estimates.components import FEW, noise, split_variance
from factsweep.operators.estimates.table import APART, answers_per_template, fluctuation_sd


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
    sample, answers = full.sampled(share, 0)
    correct = (answers == 0).astype(float)
    value, low, high, reason = fluctuation_sd(sample, correct)
    if answers_per_template(sample) >= 6:
        assert (value is None) == (reason == APART)
        return
    assert (value, low, high) == (None, None, None)
    assert reason is not None
    (percent,) = re.findall(r"; ask budget=([\d.]+)%$", reason)
    enough, _ = full.sampled(float(percent) / 100, 0)
    assert answers_per_template(enough) >= 6
    assert enough.is_asked.all()
    fewer, _ = full.sampled(0.9 * float(percent) / 100, 0)
    assert answers_per_template(fewer) < 6 or not (fewer.n_asked >= 2).all()


def test_sd_that_no_budget_gives_says_that_all_prompts_do() -> None:
    small_set = made(5, 5)
    sample, answers = small_set.sampled(0.5, 0)
    reason = fluctuation_sd(sample, (answers == 0).astype(float)).why or ""
    assert reason.endswith("; only all prompts give it")
    everything, answers = small_set.sampled(1.0, 0)
    assert fluctuation_sd(everything, (answers == 0).astype(float)).value is not None


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
    for case, data in cases.items():
        true_sd = truth(data)["fluctuation_sd"]
        for share in (0.3, 0.6):
            samples = (data.sampled(share, seed) for seed in range(40))
            estimates = [
                fluctuation_sd(item, (answers == 0).astype(float)) for item, answers in samples
            ]
            values = np.array([item.value for item in estimates])
            covered = np.mean([low <= true_sd <= high for _, low, high, _ in estimates])
            with subtests.test(case, share=share):
                error = (values.mean() - true_sd) / values.std() * np.sqrt(len(values))
                assert abs(error) < 3.5
                assert covered >= 0.85


def test_noise_of_a_single_relation_is_its_own_however_few_its_degrees() -> None:
    sizes = Sizes(n_relations=1, n_facts=8, n_templates=4, most_names=1)
    data = popular(
        sizes, 1, Logits(fact=1.0, template=1.0, fact_template=1.0, name=0.0), with_names=0.0
    )
    sample, answers = data.sampled(0.6, 1)
    split = split_variance(sample, (answers == 0).astype(np.float64))
    assert split is not None
    assert 0 < split.degrees < FEW
    assert split.residual == pytest.approx([split.fits[0].squares / split.degrees])


def test_noise_of_templates_is_each_ones_own_where_degrees_are_enough() -> None:
    sizes = Sizes(n_relations=1, n_facts=60, n_templates=5, most_names=1)
    sample, answers = popular(sizes, 1, Logits(), with_names=0.0).sampled(0.6, 1)
    split = split_variance(sample, (answers == 0).astype(np.float64))
    assert split is not None
    (fit,) = split.fits
    assert fit.degrees > FEW
    covariance = noise(sample, split, 0)
    assert 0 < np.trace(covariance) < np.trace(fit.sandwich)
    np.testing.assert_allclose(
        covariance / np.trace(covariance), fit.sandwich / np.trace(fit.sandwich)
    )

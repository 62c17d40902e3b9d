"""Where the variance of answers comes from."""

import numpy as np
import polars as pl
import pytest
from _simulation import Logits, Made, made_up

from factsweep.operators.estimates.crossed import Crossed, FloatArray
from factsweep.operators.estimates.means import weighted_mean
from factsweep.operators.estimates.variance import SOURCES, VARIANCE, advice, variance


def crossed(made: Made, share: float, seed: int = 1) -> tuple[Crossed, FloatArray]:
    sample, said = made.sampled(share, seed)
    return sample, (said == 0).astype(np.float64)


def by_source(rows: pl.DataFrame, column: str) -> dict[str, float]:
    return dict(rows.select("source", column).iter_rows())


@pytest.fixture(scope="module")
def made() -> Made:
    return made_up(n_relations=5, n_facts=80, n_templates=12, most_names=2, seed=4)


def test_variance_of_the_full_run_is_that_of_its_tables(made: Made) -> None:
    rows = variance(*crossed(made, 1.0))
    assert rows.schema == VARIANCE
    found = by_source(rows, "variance")
    share = np.bincount(made.relation) / len(made.relation)
    facts, means = [], []
    for answers, n_names in zip(made.answers_of, made.n_names_of, strict=True):
        there = (np.arange(answers.shape[2]) < n_names[:, None])[:, None, :]
        of_facts = ((answers == 0) & there).sum((1, 2)) / (n_names * answers.shape[1])
        facts.append(of_facts.var(ddof=1))
        means.append(of_facts.mean())
    assert found["fact"] == pytest.approx(share @ facts)
    assert found["relation"] == pytest.approx(share @ (means - share @ means) ** 2)
    templates = [each.var(ddof=1) for each in made.accuracies]
    # The fitted effects' noise is taken out, which is what facts × templates leave in their means.
    assert found["template"] == pytest.approx(share @ templates, rel=0.25)
    assert by_source(rows, "full_error") == pytest.approx(dict.fromkeys(SOURCES, 0.0))


def test_variance_of_samples_is_on_average_that_of_the_full_run(made: Made) -> None:
    known = by_source(variance(*crossed(made, 1.0)), "variance")
    each = [by_source(variance(*crossed(made, 0.3, seed)), "variance") for seed in range(15)]
    for source in ("relation", "fact", "template"):
        values = [found[source] for found in each]
        assert np.mean(values) == pytest.approx(known[source], rel=0.15), source
    within = ("template", "fact × template", "name", "rest")
    total = np.mean([sum(found[source] for source in within) for found in each])
    assert total == pytest.approx(sum(known[source] for source in within), rel=0.05)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_variance_full_error_is_that_of_the_interval(made: Made, share: float) -> None:
    sample, correct = crossed(made, share)
    found = weighted_mean(sample, correct, np.ones(sample.n_facts))
    assert found.value is not None
    assert found.full_high is not None
    error = variance(sample, correct)["full_error"].sum()
    half = found.full_high - found.value
    # Student's quantile: 1.96 of many degrees of freedom, and more where few facts were asked.
    assert 1.95 * np.sqrt(error) < half < 2.4 * np.sqrt(error)


def test_variance_of_facts_asked_once_has_no_rows(made: Made) -> None:
    sample, correct = crossed(made, 1.0)
    _, first = np.unique(sample.fact, return_index=True)
    parts = (each[first] for each in (sample.fact, sample.template, sample.name))
    alone = Crossed(sample.relation, sample.n_names, sample.n_templates, *parts)
    rows = variance(alone, correct[first])
    assert rows.is_empty()
    assert advice(rows).startswith("Ask more: no fact was asked twice")


@pytest.mark.parametrize(
    ("share", "expected"), [(0.03, "facts which were not asked"), (1.0, "these are all asked")]
)
def test_advice_is_of_what_the_error_comes_from(made: Made, share: float, expected: str) -> None:
    assert expected in advice(variance(*crossed(made, share)))


def test_advice_where_facts_are_all_the_error_is_to_ask_others() -> None:
    alike = made_up(
        n_relations=3, n_facts=20, n_templates=30, most_names=1, seed=1, logits=Logits(fact=9.0)
    )
    assert advice(variance(*crossed(alike, 0.7))).startswith("Ask other facts")

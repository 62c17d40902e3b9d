"""The design effect, against its formula prompt by prompt, and what it is for."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.comparing.comparison import design_effect
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio

Fact = tuple[str, list[int]]
FACTS = st.lists(
    st.tuples(
        st.sampled_from(["P1", "P2", "P3"]),
        st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=4),
    ),
    max_size=8,
)


def changes(facts: list[Fact], *, by_prompt: bool = False) -> pl.DataFrame:
    """Facts with the change of each of their prompts, as terms of acc_at_1 or of a prompt ratio."""
    schema = {
        "relation_id": pl.String,
        "pair_id": pl.String,
        "numerator": pl.Float64,
        "denominator": pl.Float64,
        "squares": pl.Float64,
        "n_prompts": pl.Int64,
    }
    rows = []
    for i, (relation, prompts) in enumerate(facts):
        weight = len(prompts) if by_prompt else 1
        mean = weight * np.mean(prompts)
        squares = weight * np.mean(np.square(prompts))
        rows.append((relation, str(i), mean, weight, squares, len(prompts)))
    return pl.DataFrame(rows, schema=schema, orient="row")


def literal(facts: list[Fact], *, by_prompt: bool) -> float | None:
    weights = [len(prompts) if by_prompt else 1 for _, prompts in facts]
    total = sum(weights)
    each = [
        (weight / len(prompts) / total, change)
        for weight, (_, prompts) in zip(weights, facts, strict=True)
        for change in prompts
    ]
    if not each:
        return None
    mean = sum(share * change for share, change in each)
    variance = sum(share * (change - mean) ** 2 for share, change in each)
    clustered, strata = 0.0, 0
    for relation in {relation for relation, _ in facts}:
        z = [
            weight * (np.mean(prompts) - mean) / total
            for weight, (own, prompts) in zip(weights, facts, strict=True)
            if own == relation
        ]
        if len(z) > 1:
            strata += 1
            clustered += len(z) / (len(z) - 1) * sum((each - np.mean(z)) ** 2 for each in z)
    if not strata or variance < 1e-9:
        return None
    return float(clustered / (variance / (len(each) - 1)))


@given(facts=FACTS, by_prompt=st.booleans())
def test_design_effect_any_facts_equals_the_formula(facts: list[Fact], by_prompt: bool) -> None:
    found = design_effect(changes(facts, by_prompt=by_prompt))
    assert found == pytest.approx(literal(facts, by_prompt=by_prompt), abs=1e-9)


@given(prompts=st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=20).filter(np.std))
def test_design_effect_a_prompt_a_fact_is_one(prompts: list[int]) -> None:
    facts = [("P1", [change]) for change in prompts]
    assert design_effect(changes(facts)) == pytest.approx(1)


@given(
    prompts=st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=20).filter(np.std),
    times=st.integers(2, 9),
)
def test_design_effect_copies_of_a_prompt_are_worth_one(prompts: list[int], times: int) -> None:
    facts = [("P1", [change] * times) for change in prompts]
    found, n = design_effect(changes(facts)), len(prompts)
    assert found == pytest.approx((times * n - 1) / (n - 1))


def test_design_effect_is_the_bootstraps_variance_over_that_of_prompts() -> None:
    rng = np.random.default_rng(1)
    facts = [
        (f"P{i % 2}", [int(rng.random() < share) for _ in range(20)])
        for i, share in enumerate(rng.random(400))
    ]
    terms = changes(facts)
    found = bootstrap_ratio(terms, seed=1, n_rounds=4000).overall
    assert found.ci_low is not None
    assert found.ci_high is not None
    half = (found.ci_high - found.ci_low) / 2 / 1.96
    prompts = np.concatenate([each for _, each in facts])
    assert design_effect(terms) == pytest.approx(half**2 / (prompts.var() / len(prompts)), rel=0.1)


def test_design_effect_undefined_is_null() -> None:
    assert design_effect(changes([])) is None
    assert design_effect(changes([("P1", [0, 1]), ("P2", [1, 1])])) is None  # one fact per relation
    assert design_effect(changes([("P1", [1]), ("P1", [1])])) is None  # all change alike
    no_prompts = changes([("P1", [0]), ("P1", [1])]).with_columns(squares=pl.lit(None, pl.Float64))
    assert design_effect(no_prompts) is None

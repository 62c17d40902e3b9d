"""Bias level, against scipy's entropy."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from factsweep.operators.metrics.belief.masked import MULTI, bias_level

# Relation → template → prompts, each the probabilities of the relation's candidates.
Relation = list[list[list[float]]]
PROBABILITY = st.floats(2**-20, 1, width=32)


@st.composite
def relations(draw: st.DrawFn) -> list[Relation]:
    def relation() -> Relation:
        n = draw(st.integers(2, 5))
        prompt = st.lists(st.one_of(st.just(0.0), PROBABILITY), min_size=n, max_size=n).filter(any)
        template = st.lists(prompt, min_size=1, max_size=3)
        return draw(st.lists(template, min_size=1, max_size=3))

    return [relation() for _ in range(draw(st.integers(1, 3)))]


def table(drawn: list[Relation]) -> pl.DataFrame:
    rows = [
        (f"P{r}", f"P{r}.{t}", prompt)
        for r, relation in enumerate(drawn)
        for t, template in enumerate(relation)
        for prompt in template
    ]
    schema = {
        "relation_id": pl.String,
        "template_id": pl.String,
        "probabilities": pl.List(pl.Float64),
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def level(distribution: np.ndarray) -> float:
    return float(1 - entropy(distribution) / np.log(len(distribution)))


def template_means(relation: Relation) -> list[np.ndarray]:
    return [np.mean([np.array(p) / sum(p) for p in template], axis=0) for template in relation]


def values(rows: pl.DataFrame, variant: str | None) -> dict[str | None, float]:
    mine = rows.filter(pl.col("variant").eq_missing(pl.lit(variant)))
    return dict(mine.select("slice", "value").iter_rows())


@given(drawn=relations())
def test_bias_level_any_distributions_equals_scipys_entropy(drawn: list[Relation]) -> None:
    rows = bias_level(table(drawn))
    single = [[level(each) for each in template_means(relation)] for relation in drawn]
    multi = [level(np.mean(template_means(relation), axis=0)) for relation in drawn]
    names = [f"relation=P{r}" for r in range(len(drawn))]
    expected = {
        None: np.mean([each for levels in single for each in levels]),
        **dict(zip(names, map(np.mean, single), strict=True)),
    }
    assert values(rows, None) == pytest.approx(expected, abs=1e-9)
    expected = {None: np.mean(multi), **dict(zip(names, multi, strict=True))}
    assert values(rows, MULTI) == pytest.approx(expected, abs=1e-9)


@given(drawn=relations())
def test_bias_level_any_relation_more_templates_never_add_bias(drawn: list[Relation]) -> None:
    rows = bias_level(table(drawn))
    single, multi = values(rows, None), values(rows, MULTI)
    for part in single.keys() - {None}:
        assert -1e-9 <= multi[part] <= single[part] + 1e-9 <= 1 + 2e-9


@given(drawn=relations(), scale=st.floats(0.01, 1))
def test_bias_level_probability_of_other_tokens_changes_nothing(
    drawn: list[Relation], scale: float
) -> None:
    rows = table(drawn)
    scaled = rows.with_columns(pl.col("probabilities") * scale)
    found = bias_level(scaled)["value"].to_list()
    assert found == pytest.approx(bias_level(rows)["value"].to_list(), abs=1e-9)


def test_bias_level_fewer_than_two_candidates_are_left_out() -> None:
    found = bias_level(table([[[[0.3]]], [[[]]], [[[0.2, 0.2]]]]))
    single = values(found, None)
    assert single == {
        None: pytest.approx(0.0),
        "relation=P0": None,
        "relation=P1": None,
        "relation=P2": pytest.approx(0.0),
    }


def test_bias_level_prompt_without_any_probability_is_left_out() -> None:
    found = bias_level(table([[[[0.0, 0.0], [0.3, 0.3]], [[0.0, 0.0]]]]))
    assert values(found, None)["relation=P0"] == pytest.approx(0.0)


def test_bias_level_nothing_asked_is_null() -> None:
    assert bias_level(table([]))["value"].to_list() == [None, None]

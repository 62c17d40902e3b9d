"""The order of a fact's prompts, and a budget of them."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.estimates.choice import (
    LatinSquare,
    Relation,
    allot_prompts,
    choose_pairs,
    choose_prompts,
    square,
)
from factsweep.pipeline.config.budget import Budget

NAMES = st.lists(st.integers(1, 4), min_size=1, max_size=40)


def made(names: list[int], n_templates: int, seed: int = 0) -> LatinSquare:
    return square(np.array(names), n_templates, seed=seed, relation_id="P1")


@given(names=NAMES, n_templates=st.integers(1, 12), seed=st.integers(0, 5))
def test_laps_all_of_a_fact_ask_each_template_under_each_name_once(
    names: list[int], n_templates: int, seed: int
) -> None:
    blocks = made(names, n_templates, seed)
    for fact, n_names in enumerate(names):
        n = n_names * n_templates
        lap_prompts = blocks.at(np.full(n, fact), np.arange(n))
        every = {(t, k) for t in range(n_templates) for k in range(n_names)}
        assert (
            set(zip(lap_prompts.template.tolist(), lap_prompts.name.tolist(), strict=True)) == every
        )


@given(n_blocks=st.integers(1, 4), n_names=st.integers(1, 3), n_templates=st.integers(1, 9))
def test_lap_of_whole_blocks_asks_templates_equally_often(
    n_blocks: int, n_names: int, n_templates: int
) -> None:
    facts = np.arange(n_blocks * n_templates)
    blocks = made([n_names] * len(facts), n_templates)
    for lap in range(n_names * n_templates):
        templates = blocks.at(facts, np.full(len(facts), lap)).template
        assert np.bincount(templates, minlength=n_templates).tolist() == [n_blocks] * n_templates


def test_laps_two_of_a_fact_share_a_name_as_often_as_any_two() -> None:
    facts = np.arange(8000)
    blocks = made([2] * len(facts), 10)
    first, second = (blocks.at(facts, np.full(len(facts), lap)) for lap in (0, 1))
    share = np.mean(first.name == second.name)
    assert abs(share - 9 / 19) < 0.02
    assert abs(np.mean(first.template == second.template) - 1 / 19) < 0.01


def test_laps_another_seed_or_relation_gives_another_order() -> None:
    first, other = made([1] * 30, 10), made([1] * 30, 10, seed=1)
    assert (first.templates != other.templates).any()
    repeated = made([1] * 30, 10)
    assert (first.templates == repeated.templates).all()


SIZES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=30)


@given(sizes=SIZES, seed=st.integers(0, 5))
def test_budget_each_contains_the_smaller_and_all_is_all(
    sizes: list[tuple[int, int]], seed: int
) -> None:
    relation = np.unique([r for r, _ in sizes], return_inverse=True)[1]
    n_prompts, place = np.array([n for _, n in sizes]), np.arange(len(sizes))
    last_laps = np.zeros(len(sizes), np.int64)
    for budget in range(int(n_prompts.sum()) + 1):
        laps = allot_prompts(budget, n_prompts, relation, place, seed=seed)
        assert (laps >= last_laps).all()
        assert budget - 1 <= laps.sum() <= budget or laps.sum() == n_prompts.sum()
        n_asked = laps[laps > 0]
        assert (n_asked >= np.minimum(2, n_prompts[laps > 0])).all()
        last_laps = laps
    assert (last_laps == n_prompts).all()


def test_budget_takes_relations_in_proportion() -> None:
    relation = np.repeat([0, 1], [300, 100])
    place = np.concatenate([np.arange(300), np.arange(100)])
    laps = allot_prompts(200, np.full(400, 50), relation, place, seed=3)
    assert abs((laps[:300] > 0).sum() - 75) <= 1


CROSSED = st.lists(
    st.tuples(st.lists(st.integers(1, 3), min_size=1, max_size=9), st.integers(1, 6)),
    min_size=1,
    max_size=3,
)


@given(crossed=CROSSED, budget=st.integers(1, 300), seed=st.integers(0, 5))
def test_prompts_of_a_budget_are_among_those_of_a_larger_one(
    crossed: list[tuple[list[int], int]], budget: int, seed: int
) -> None:
    relations = {
        f"P{number}": Relation(
            pl.DataFrame({"pair_id": [f"t{i}" for i in range(len(names))], "n_names": names}),
            pl.Series([f"{i}" for i in range(n_templates)]),
            is_crossed=True,
        )
        for number, (names, n_templates) in enumerate(crossed)
    }
    size = sum(sum(names) * n_templates for names, n_templates in crossed)
    sample = choose_prompts(relations, Budget(None, budget).of, seed=seed)
    assert min(budget, size) - 1 <= sum(rows.height for rows in sample.values()) <= budget
    larger = choose_prompts(relations, Budget(None, 2 * budget).of, seed=seed)
    for name, rows in sample.items():
        assert rows.is_duplicated().sum() == 0
        assert rows.join(larger[name], on=rows.columns, how="anti").is_empty()


GROUPS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=8), min_size=1, max_size=4)


@given(groups=GROUPS, seed=st.integers(0, 5))
def test_budget_of_whole_pairs_contains_the_smaller_and_all_is_all(
    groups: list[list[int]], seed: int
) -> None:
    prompts = {
        f"P{number}": pl.DataFrame({"pair_id": [f"t{i}" for i in range(len(sizes))], "n": sizes})
        for number, sizes in enumerate(groups)
    }
    last_pairs: set[tuple[str, str]] = set()
    for budget in range(sum(map(sum, groups)) + 1):
        sample = choose_pairs(prompts, Budget(None, budget).of, seed=seed)
        pairs = {(name, pair) for name, rows in sample.items() for pair in rows["pair_id"]}
        n = sum(rows.join(prompts[name], on="pair_id")["n"].sum() for name, rows in sample.items())
        assert n <= budget
        assert last_pairs <= pairs
        last_pairs = pairs
    assert len(last_pairs) == sum(map(len, groups))

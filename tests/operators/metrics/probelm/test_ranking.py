"""Scores of a group, against a naive ranking, scikit-learn, and every order there is."""

from fractions import Fraction
from itertools import pairwise, permutations
from math import inf, log2, nan
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from factsweep.operators.metrics.probelm import (
    GROUP_SCORES,
    RANKING_METRICS,
    costs,
    group_scores,
    random_group_scores,
)

# The file's ranks and the costs of a group's candidates, the plausible one first.
Group = list[tuple[int, float]]


@st.composite
def groups(draw: st.DrawFn, max_size: int = 11) -> list[Group]:
    def group() -> Group:
        ranks = draw(st.lists(st.integers(2, 14), min_size=1, max_size=max_size - 1, unique=True))
        cost = st.sampled_from([-1.0, 0.0, 0.5, 0.5 + 1e-9, 2.0, inf])
        return [(rank, draw(cost)) for rank in [1, *sorted(ranks)]]

    return [group() for _ in range(draw(st.integers(1, 3)))]


def candidates(given: list[Group]) -> pl.DataFrame:
    rows = [
        {
            "pair_id": f"g{g}",
            "relation_id": f"P{g % 2}",
            "frame": "2023-11",
            "candidate_id": f"g{g}.{rank}",
            "rank": rank,
            "is_positive": rank == 1,
            "cost": cost,
        }
        for g, group in enumerate(given)
        for rank, cost in group
    ]
    return pl.DataFrame(rows, schema_overrides={"cost": pl.Float64})


def scored(given: list[Group]) -> pl.DataFrame:
    rows = candidates(given)
    return group_scores(rows.drop("cost"), rows.select("candidate_id", "cost"))


def naive_dcg(relevances: list[int], cut: int) -> float:
    return sum(gain / log2(place + 1) for place, gain in enumerate(relevances[:cut], 1))


def naive(group: Group) -> dict[str, float]:
    """The metrics' formulas, NDCG as the mean over the orders that the costs allow."""
    positive = group[0][1]
    above = sum(cost < positive for _, cost in group)
    ties = sum(cost == positive for _, cost in group)
    place = Fraction(sum(range(above + 1, above + ties + 1)), ties)
    orders = [
        order for order in permutations(group) if all(a[1] <= b[1] for a, b in pairwise(order))
    ]
    graded, binary = (lambda rank: max(12 - rank, 0)), (lambda rank: int(rank == 1))
    found = {"accuracy": float(place == 1), "mrr": float(1 / place)}
    for name, gain, cut in (
        ("ndcg", graded, 99),
        ("ndcg_binary", binary, 99),
        ("ndcg_at_3", binary, 3),
    ):
        gains = [[gain(rank) for rank, _ in order] for order in orders]
        ideal = naive_dcg(sorted(gains[0], reverse=True), cut)
        found[name] = mean(naive_dcg(each, cut) for each in gains) / ideal
    return found


@given(groups(max_size=6))
def test_group_scores_are_those_of_the_formulas(given: list[Group]) -> None:
    found = scored(given)
    assert found.schema == GROUP_SCORES
    for row, group in zip(found.iter_rows(named=True), given, strict=True):
        assert {name: row[name] for name in RANKING_METRICS} == pytest.approx(naive(group))


@given(groups())
def test_group_scores_ndcg_is_that_of_scikit_learn(given: list[Group]) -> None:
    for row, group in zip(scored(given).iter_rows(named=True), given, strict=True):
        # An infinite score has no place in scikit-learn; only the order counts.
        _, dense = np.unique([-cost for _, cost in group], return_inverse=True)
        graded = [[max(12 - rank, 0) for rank, _ in group]]
        binary = [[int(rank == 1) for rank, _ in group]]
        assert row["ndcg"] == pytest.approx(ndcg_score(graded, [dense]))
        assert row["ndcg_binary"] == pytest.approx(ndcg_score(binary, [dense]))
        assert row["ndcg_at_3"] == pytest.approx(ndcg_score(binary, [dense], k=3))


@given(groups(max_size=6))
def test_random_group_scores_are_the_mean_over_all_orders(given: list[Group]) -> None:
    found = random_group_scores(candidates(given))
    assert found.schema == GROUP_SCORES
    for row, group in zip(found.iter_rows(named=True), given, strict=True):
        ranks = [rank for rank, _ in group]
        orders = permutations([float(place) for place in range(len(group))])
        of_orders = scored([list(zip(ranks, order, strict=True)) for order in orders])
        for name in RANKING_METRICS:
            assert row[name] == pytest.approx(of_orders[name].mean())


@given(groups(), st.randoms())
def test_group_scores_order_of_rows_changes_nothing(given: list[Group], random: Any) -> None:
    rows = candidates(given)
    order = list(range(rows.height))
    random.shuffle(order)
    shuffled = rows[order]
    again = group_scores(shuffled.drop("cost"), shuffled.select("candidate_id", "cost"))
    key = "pair_id"
    numbers = [
        frame.sort(key).select(RANKING_METRICS).to_numpy() for frame in (scored(given), again)
    ]
    assert np.allclose(*numbers)


@given(groups(), st.floats(0.1, 10), st.floats(-5, 5))
def test_group_scores_only_the_order_of_costs_counts(
    given: list[Group], factor: float, shift: float
) -> None:
    steps = {cost: i for i, cost in enumerate(sorted({c for each in given for _, c in each}))}
    moved = [[(rank, factor * steps[cost] + shift) for rank, cost in each] for each in given]
    assert scored(moved).equals(scored(given))


def test_group_scores_all_tied_is_as_good_as_random() -> None:
    group = [[(rank, 0.5) for rank in range(1, 12)]]
    row, chance = scored(group).row(0, named=True), random_group_scores(candidates(group))
    for name in ("ndcg", "ndcg_binary", "ndcg_at_3"):
        assert row[name] == pytest.approx(chance[name].item())
    assert row["accuracy"] == 0
    assert row["mrr"] == pytest.approx(1 / 6)
    assert chance["accuracy"].item() == pytest.approx(1 / 11)


def test_group_scores_right_order_scores_one_and_reversed_least() -> None:
    ranks = range(1, 12)
    best = scored([[(rank, float(rank)) for rank in ranks]]).row(0, named=True)
    assert [best[name] for name in RANKING_METRICS] == pytest.approx([1] * 5)
    worst = scored([[(rank, -float(rank)) for rank in ranks]]).row(0, named=True)
    assert (worst["accuracy"], worst["mrr"], worst["ndcg_at_3"]) == (0, 1 / 11, 0)
    assert 0 < worst["ndcg"] < 1


def test_group_scores_group_with_a_missing_cost_is_left_out() -> None:
    rows = candidates([[(1, 0.1), (2, 0.2)], [(1, 0.1), (2, 0.2)]])
    known = rows.select("candidate_id", "cost").head(3)
    assert group_scores(rows.drop("cost"), known)["pair_id"].to_list() == ["g0"]
    assert group_scores(rows.drop("cost"), known.clear()).is_empty()


def test_costs_of_each_score() -> None:
    scores = pl.DataFrame(
        {
            "candidate_id": ["a", "b", "c", "d", "e"],
            "logprob": [-8.0, None, nan, -1.0, -inf],
            "n_tokens": [4, 4, 4, 0, 4],
            "entity_logprob": [-3.0, -1.0, -1.0, 0.0, -1.0],
            "entity_n_tokens": [2, 2, 2, 0, 2],
        }
    )
    assert costs(scores, "text_perplexity")["cost"].to_list() == [2.0, None, None, None, inf]
    assert costs(scores, "answer_sum")["cost"].to_list() == [3.0, 1.0, 1.0, None, 1.0]
    assert costs(scores, "answer_mean")["cost"].to_list() == [1.5, 0.5, 0.5, None, 0.5]

"""PRobELM's metrics, against a naive scorer that ranks and averages word by word."""

from fractions import Fraction
from itertools import pairwise, permutations
from math import exp, inf, log2, nan
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn.metrics import ndcg_score

from factsweep.operators.metrics.probelm import (
    ALL_TYPES,
    CORRELATIONS,
    GROUP_SCORES,
    OCCUPATION,
    PLAUSIBILITY,
    PROBELM,
    RANKING_METRICS,
    correlations,
    costs,
    group_scores,
    probelm,
    random_group_scores,
)
from factsweep.operators.prompts.plausibility import PROMPT_TYPES

# An example takes a tenth of a second: shrinking one would take minutes.
FEW = settings.default.max_examples // 3
WITHOUT_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]
RELATIONS = [OCCUPATION, "P27"]
FRAMES = ["2017-12", "2023-11"]

# A text's scores: logprob, n_tokens, entity_logprob, entity_n_tokens; null where it failed.
Text = tuple[float, int, float, int] | None


class Group:
    def __init__(
        self, number: int, relation: str, frame: str, texts: dict[str, list[Text]]
    ) -> None:
        self.relation, self.frame, self.texts = relation, frame, texts
        self.pair_id = f"{relation}.{frame}.{number}"

    def rank(self, setting: str, score: str) -> int | None:
        """The plausible one's rank; costs are distinct by construction."""
        if None in self.texts[setting]:
            return None
        cost = {
            "text_perplexity": lambda text: exp(-text[0] / text[1]),
            "answer_sum": lambda text: -text[2],
            "answer_mean": lambda text: exp(-text[2] / text[3]),
        }[score]
        found: list[float] = [cost(text) for text in self.texts[setting]]
        return 1 + sum(each < found[0] for each in found[1:])

    def values(self, setting: str, score: str) -> dict[str, float] | None:
        rank = self.rank(setting, score)
        if rank is None:
            return None
        discount = 1 / log2(1 + rank)
        return {
            "accuracy": float(rank == 1),
            "mrr": 1 / rank,
            "ndcg_binary": discount,
            "ndcg_at_3": discount if rank <= 3 else 0.0,
        }


@st.composite
def given_groups(draw: st.DrawFn) -> list[Group]:
    def text(number: int) -> Text:
        if draw(st.integers(0, 40)) == 0:
            return None
        n, m = draw(st.integers(5, 9)), draw(st.integers(1, 3))
        # No two candidates of a group can tie: their thousandths differ in each kind of cost.
        return -n * (draw(st.integers(1, 5)) + number / 1000), n, -m * (1 + number / 1000), m

    groups = []
    for number in range(draw(st.integers(1, 6))):
        size = draw(st.integers(2, 4))
        texts = {
            setting: [text(place) for place in draw(st.permutations(range(size)))]
            for setting in PROMPT_TYPES
        }
        relation, frame = draw(st.sampled_from(RELATIONS)), draw(st.sampled_from(FRAMES))
        groups.append(Group(number, relation, frame, texts))
    return groups


def candidates(groups: list[Group]) -> pl.DataFrame:
    rows = [
        {
            "candidate_id": f"{group.pair_id}.{rank}",
            "pair_id": group.pair_id,
            "relation_id": group.relation,
            "frame": group.frame,
            "rank": rank,
            "is_positive": rank == 1,
        }
        for group in groups
        for rank in range(1, len(group.texts["statement"]) + 1)
    ]
    return pl.DataFrame(rows)


def scores(groups: list[Group]) -> pl.DataFrame:
    names = ["logprob", "n_tokens", "entity_logprob", "entity_n_tokens"]
    rows: list[dict[str, Any]] = [
        {
            "setting": setting,
            "candidate_id": f"{group.pair_id}.{rank}",
            **dict(zip(names, text, strict=True)),
        }
        for group in groups
        for setting, texts in group.texts.items()
        for rank, text in enumerate(texts, 1)
        if text is not None
    ]
    types = [pl.String, pl.String, pl.Float64, pl.Int64, pl.Float64, pl.Int64]
    schema = dict(zip(["setting", "candidate_id", *names], types, strict=True))
    return pl.DataFrame(rows, schema=schema)


def slices(groups: list[Group]) -> dict[str | None, list[Group]]:
    found: dict[str | None, list[Group]] = {None: groups}
    for group in groups:
        found.setdefault(f"relation={group.relation}", []).append(group)
        found.setdefault(f"frame={group.frame}", []).append(group)
    for name in [None, *(f"frame={frame}" for frame in FRAMES)]:
        mine = found.get(name, [])
        if {group.relation for group in mine} == set(RELATIONS):
            others = [group for group in mine if group.relation != OCCUPATION]
            found[f"{name + ',' if name else ''}without={OCCUPATION}"] = others
    return found


@pytest.mark.many
@given(given_groups())
@settings(phases=WITHOUT_SHRINKING, max_examples=FEW)
def test_probelm_numbers_are_those_of_the_naive_scorer(groups: list[Group]) -> None:
    table = probelm(scores(groups), candidates(groups), seed=1, n_rounds=2)
    assert table.schema == PROBELM
    own = table.filter(~pl.col("metric").str.starts_with("baseline_"), pl.col("metric") != "ndcg")
    parts = slices(groups)
    asked = [s for s in PROMPT_TYPES if s in scores(groups)["setting"]]
    n_all = 2 if len(asked) == 3 else 0
    assert own.height == 3 * len(parts) * (4 * len(asked) + n_all)
    for row in own.filter(pl.col("setting") != ALL_TYPES).iter_rows(named=True):
        score = (row["variant"] or "score=text_perplexity").removeprefix("score=")
        mine = [group.values(row["setting"], score) for group in parts[row["slice"]]]
        values = [each[row["metric"]] for each in mine if each is not None]
        assert (row["n"], row["n_failed"]) == (len(values), len(mine) - len(values))
        assert row["value"] == (pytest.approx(mean(values)) if values else None)


@pytest.mark.many
@given(given_groups())
@settings(phases=WITHOUT_SHRINKING, max_examples=FEW)
def test_probelm_plausibility_is_the_mean_of_the_nine(groups: list[Group]) -> None:
    whole = [g for g in groups if all(None not in texts for texts in g.texts.values())]
    table = probelm(scores(groups), candidates(groups), seed=1, n_rounds=2)
    mine = probelm(scores(whole), candidates(whole), seed=1, n_rounds=2) if whole else table.clear()
    keys = ["variant", "slice"]
    for metric, names in PLAUSIBILITY.items():
        nine = mine.filter(pl.col("metric").is_in(names), pl.col("setting") != ALL_TYPES)
        expected = nine.group_by(keys).agg(pl.len(), pl.mean("value"))
        # Without a relation there is a slice only where the relation and another one are.
        kept = ~pl.col("slice").fill_null("").str.contains("without")
        found = table.filter(kept, pl.col("metric") == metric, pl.col("n") > 0)
        both = found.join(expected, on=keys, nulls_equal=True)
        assert both.height == found.height
        assert both["len"].unique().to_list() in ([9], [])
        assert both["value"].to_list() == pytest.approx(both["value_right"].to_list())


def group_of(*costs: float, number: int = 0, relation: str = "P27") -> Group:
    texts: list[Text] = [(-cost * 5, 5, -cost, 1) for cost in costs]
    return Group(number, relation, "2023-11", dict.fromkeys(PROMPT_TYPES, texts))


def test_probelm_baseline_is_that_of_chance_on_all_groups() -> None:
    groups = [group_of(*range(11)), group_of(*range(11), number=1)]
    groups[1].texts["statement"] = [None, *groups[1].texts["statement"][1:]]
    table = probelm(scores(groups), candidates(groups), seed=1, n_rounds=2)
    statement = table.filter(
        pl.col("slice").is_null(), pl.col("variant").is_null(), pl.col("setting") == "statement"
    )
    numbers = {row["metric"]: row for row in statement.iter_rows(named=True)}
    assert numbers["baseline_accuracy"]["value"] == pytest.approx(1 / 11)
    assert numbers["baseline_accuracy"]["n"] == 2
    assert (numbers["accuracy"]["n"], numbers["accuracy"]["n_failed"]) == (1, 1)
    assert set(numbers) == {p + m for p in ("", "baseline_") for m in RANKING_METRICS}
    overall = table.filter(pl.col("setting") == ALL_TYPES, pl.col("slice").is_null())
    assert overall["metric"].unique().sort().to_list() == sorted(
        p + m for p in ("", "baseline_") for m in PLAUSIBILITY
    )


def test_probelm_one_prompt_type_has_no_plausibility_and_no_entities_no_variants() -> None:
    groups = [group_of(1, 2)]
    one = scores(groups).filter(setting="question")
    assert probelm(one, candidates(groups), seed=1)["setting"].unique().to_list() == ["question"]
    table = probelm(scores(groups).drop("entity_n_tokens"), candidates(groups), seed=1)
    assert table["variant"].null_count() == table.height > 0


def test_probelm_intervals_hold_the_value_and_depend_on_the_relation_alone() -> None:
    def many(relation: str) -> list[Group]:
        costs = ((1, 2, 3), (2, 1, 3), (3, 1, 2))
        return [group_of(*costs[i % 3], number=i, relation=relation) for i in range(9)]

    both, one = [*many("P27"), *many("P19")], many("P27")
    tables = [probelm(scores(g), candidates(g), seed=1, n_rounds=200) for g in (both, one)]
    mine = [t.filter(pl.col("slice") == "relation=P27") for t in tables]
    assert mine[0].equals(mine[1])
    rows = mine[0].filter(pl.col("metric") == "mrr")
    assert rows.filter(pl.col("ci_low").is_between(0, pl.col("value"), closed="none")).height == 9
    assert (rows["ci_high"] > rows["value"]).all()
    chance = mine[0].filter(pl.col("metric") == "baseline_mrr")
    assert (chance["ci_high"] - chance["ci_low"]).to_list() == pytest.approx([0] * chance.height)


def test_probelm_order_of_rows_changes_nothing() -> None:
    groups = [group_of(1, 2, 3), group_of(3, 2, 1, number=1, relation=OCCUPATION)]
    whole = scores(groups), candidates(groups)
    again = [frame.sample(fraction=1, shuffle=True, seed=5) for frame in whole]
    tables = [probelm(*each, seed=1, n_rounds=50) for each in (whole, again)]
    assert tables[0].equals(tables[1])


# The file's ranks and the costs of a group's candidates, the plausible one first.
Ranked = list[tuple[int, float]]


@st.composite
def groups(draw: st.DrawFn, max_size: int = 11) -> list[Ranked]:
    def group() -> Ranked:
        ranks = draw(st.lists(st.integers(2, 14), min_size=1, max_size=max_size - 1, unique=True))
        cost = st.sampled_from([-1.0, 0.0, 0.5, 0.5 + 1e-9, 2.0, inf])
        return [(rank, draw(cost)) for rank in [1, *sorted(ranks)]]

    return [group() for _ in range(draw(st.integers(1, 3)))]


def ranked_candidates(given: list[Ranked]) -> pl.DataFrame:
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


def scored(given: list[Ranked]) -> pl.DataFrame:
    rows = ranked_candidates(given)
    return group_scores(rows.drop("cost"), rows.select("candidate_id", "cost"))


def naive_dcg(relevances: list[int], cut: int) -> float:
    return sum(gain / log2(place + 1) for place, gain in enumerate(relevances[:cut], 1))


def naive(group: Ranked) -> dict[str, float]:
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
def test_group_scores_are_those_of_the_formulas(given: list[Ranked]) -> None:
    found = scored(given)
    assert found.schema == GROUP_SCORES
    for row, group in zip(found.iter_rows(named=True), given, strict=True):
        assert {name: row[name] for name in RANKING_METRICS} == pytest.approx(naive(group))


@given(groups())
def test_group_scores_ndcg_is_that_of_scikit_learn(given: list[Ranked]) -> None:
    for row, group in zip(scored(given).iter_rows(named=True), given, strict=True):
        # An infinite score has no place in scikit-learn; only the order counts.
        _, dense = np.unique([-cost for _, cost in group], return_inverse=True)
        graded = [[max(12 - rank, 0) for rank, _ in group]]
        binary = [[int(rank == 1) for rank, _ in group]]
        assert row["ndcg"] == pytest.approx(ndcg_score(graded, [dense]))
        assert row["ndcg_binary"] == pytest.approx(ndcg_score(binary, [dense]))
        assert row["ndcg_at_3"] == pytest.approx(ndcg_score(binary, [dense], k=3))


@given(groups(max_size=6))
def test_random_group_scores_are_the_mean_over_all_orders(given: list[Ranked]) -> None:
    found = random_group_scores(ranked_candidates(given))
    assert found.schema == GROUP_SCORES
    for row, group in zip(found.iter_rows(named=True), given, strict=True):
        ranks = [rank for rank, _ in group]
        orders = permutations([float(place) for place in range(len(group))])
        of_orders = scored([list(zip(ranks, order, strict=True)) for order in orders])
        for name in RANKING_METRICS:
            assert row[name] == pytest.approx(of_orders[name].mean())


@given(groups(), st.randoms())
def test_group_scores_order_of_rows_changes_nothing(given: list[Ranked], random: Any) -> None:
    rows = ranked_candidates(given)
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
    given: list[Ranked], factor: float, shift: float
) -> None:
    steps = {cost: i for i, cost in enumerate(sorted({c for each in given for _, c in each}))}
    moved = [[(rank, factor * steps[cost] + shift) for rank, cost in each] for each in given]
    assert scored(moved).equals(scored(given))


def test_group_scores_group_with_a_missing_cost_is_left_out() -> None:
    rows = ranked_candidates([[(1, 0.1), (2, 0.2)], [(1, 0.1), (2, 0.2)]])
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


NAMES = ("statement", "question")


def measured(values: dict[tuple[str, str, str], float | None]) -> pl.DataFrame:
    rows = [(*key, value, None) for key, value in values.items()]
    schema = ["model", "setting", "metric", "value", "ci_low"]
    return pl.DataFrame(rows, schema=schema, orient="row", schema_overrides={"value": pl.Float64})


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=3, max_size=8))
def test_correlations_are_those_of_scipy(pairs: list[tuple[int, int]]) -> None:
    values = {
        (f"m{i}", setting, "mrr"): float(value)
        for i, each in enumerate(pairs)
        for setting, value in zip(NAMES, each, strict=True)
    }
    found = correlations(measured(values), "setting", NAMES)
    assert found.schema == CORRELATIONS
    first, second = (list(column) for column in zip(*pairs, strict=True))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found["pearson"].item() is None
    else:
        assert found["pearson"].item() == pytest.approx(pearsonr(first, second).statistic)


def test_correlations_values_meet_those_of_the_same_model_and_metric() -> None:
    statement = {("a", "statement", "mrr"): 1, ("a", "statement", "ndcg"): 2}
    other = {("a", "question", "ndcg"): 5, ("a", "question", "mrr"): 4, ("b", "question", "mrr"): 9}
    found = correlations(measured({**statement, **other}), "setting", NAMES)
    assert found.row(0) == ("statement", "question", pytest.approx(1), 2)


def test_correlations_undefined_is_null() -> None:
    values = {("a", "statement", "mrr"): None, ("a", "question", "mrr"): 1.0}
    assert correlations(measured(values), "setting", NAMES).row(0)[2:] == (None, 0)
    assert correlations(measured(values), "metric", ("mrr",)).is_empty()

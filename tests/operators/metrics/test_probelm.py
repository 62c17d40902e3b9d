"""PRobELM's metrics, against a naive scorer that ranks and averages word by word."""

from fractions import Fraction
from itertools import pairwise, permutations
from math import exp, inf, log2, nan
from statistics import mean

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr

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
from factsweep.operators.schemas import schema

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

    def values(self, setting: str, score: str) -> dict[str, float] | None:
        """The metrics; costs are distinct by construction."""
        cost = {
            "text_perplexity": lambda text: exp(-text[0] / text[1]),
            "answer_sum": lambda text: -text[2],
            "answer_mean": lambda text: exp(-text[2] / text[3]),
        }[score]
        texts = self.texts[setting]
        if None in texts:
            return None
        order = sorted(range(len(texts)), key=lambda place: cost(texts[place]))
        rank = 1 + order.index(0)
        discount, relevances = 1 / log2(1 + rank), [11 - place for place in order]
        return {
            "accuracy": float(rank == 1),
            "mrr": 1 / rank,
            "ndcg": naive_dcg(relevances, 99) / naive_dcg(sorted(relevances, reverse=True), 99),
            "ndcg_binary": discount,
            "ndcg_at_3": discount if rank <= 3 else 0.0,
        }

    def plausibility(self, metric: str, score: str) -> float | None:
        values = [self.values(setting, score) for setting in PROMPT_TYPES]
        defined = [value for value in values if value is not None]
        names = PLAUSIBILITY[metric]
        complete = len(defined) == len(values)
        return mean(value[name] for value in defined for name in names) if complete else None


def naive_dcg(relevances: list[int], cut: int) -> float:
    return sum(gain / log2(place + 1) for place, gain in enumerate(relevances[:cut], 1))


@st.composite
def drawn_groups(draw: st.DrawFn) -> list[Group]:
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
        (f"{group.pair_id}.{rank}", group.pair_id, group.relation, group.frame, rank, rank == 1)
        for group in groups
        for rank in range(1, len(group.texts["statement"]) + 1)
    ]
    columns = ["candidate_id", "pair_id", "relation_id", "frame", "rank", "is_positive"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def scores(groups: list[Group]) -> pl.DataFrame:
    rows = [
        (setting, f"{group.pair_id}.{rank}", *text)
        for group in groups
        for setting, texts in group.texts.items()
        for rank, text in enumerate(texts, 1)
        if text is not None
    ]
    columns = schema("""
        setting text, candidate_id text, logprob float, n_tokens int, entity_logprob float,
        entity_n_tokens int
    """)
    return pl.DataFrame(rows, schema=columns, orient="row")


def slices(groups: list[Group]) -> dict[str | None, list[Group]]:
    by_name: dict[str | None, list[Group]] = {None: groups}
    for group in groups:
        by_name.setdefault(f"relation={group.relation}", []).append(group)
        by_name.setdefault(f"frame={group.frame}", []).append(group)
    for name in [None, *(f"frame={frame}" for frame in FRAMES)]:
        members = by_name.get(name, [])
        if {group.relation for group in members} == set(RELATIONS):
            other_relations = [group for group in members if group.relation != OCCUPATION]
            by_name[f"{name + ',' if name else ''}without={OCCUPATION}"] = other_relations
    return by_name


@pytest.mark.many
@given(drawn_groups())
@settings(phases=WITHOUT_SHRINKING, max_examples=FEW)
def test_probelm_numbers_are_those_of_the_naive_scorer(groups: list[Group]) -> None:
    table = probelm(scores(groups), candidates(groups), seed=1, n_rounds=2)
    assert table.schema == PROBELM
    rows = table.filter(~pl.col("metric").str.starts_with("baseline_"))
    parts = slices(groups)
    prompt_types = [s for s in PROMPT_TYPES if s in scores(groups)["setting"]]
    n_all = 2 if len(prompt_types) == 3 else 0
    assert rows.height == 3 * len(parts) * (5 * len(prompt_types) + n_all)
    for row in rows.iter_rows(named=True):
        score = (row["variant"] or "score=text_perplexity").removeprefix("score=")
        numbers = []
        for group in parts[row["slice"]]:
            if row["setting"] == ALL_TYPES:
                numbers.append(group.plausibility(row["metric"], score))
            else:
                values = group.values(row["setting"], score)
                numbers.append(None if values is None else values[row["metric"]])
        defined = [number for number in numbers if number is not None]
        assert (row["n"], row["n_failed"]) == (len(defined), len(numbers) - len(defined))
        assert row["value"] == (pytest.approx(mean(defined)) if defined else None)


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
    questions = scores(groups).filter(setting="question")
    assert probelm(questions, candidates(groups), seed=1)["setting"].unique().to_list() == [
        "question"
    ]
    table = probelm(scores(groups).drop("entity_n_tokens"), candidates(groups), seed=1)
    assert table["variant"].null_count() == table.height > 0


def test_probelm_intervals_hold_the_value_and_depend_on_the_relation_alone() -> None:
    def many(relation: str) -> list[Group]:
        costs = ((1, 2, 3), (2, 1, 3), (3, 1, 2))
        return [group_of(*costs[i % 3], number=i, relation=relation) for i in range(9)]

    two_relations, one_relation = [*many("P27"), *many("P19")], many("P27")
    of_two, of_one = (
        probelm(scores(groups), candidates(groups), seed=1, n_rounds=200).filter(
            slice="relation=P27"
        )
        for groups in (two_relations, one_relation)
    )
    assert of_two.equals(of_one)
    rows = of_two.filter(pl.col("metric") == "mrr")
    assert rows.filter(pl.col("ci_low").is_between(0, pl.col("value"), closed="none")).height == 9
    assert (rows["ci_high"] > rows["value"]).all()
    chance = of_two.filter(pl.col("metric") == "baseline_mrr")
    assert (chance["ci_high"] - chance["ci_low"]).to_list() == pytest.approx([0] * chance.height)


def test_probelm_order_of_rows_changes_nothing() -> None:
    groups = [group_of(1, 2, 3), group_of(3, 2, 1, number=1, relation=OCCUPATION)]
    inputs = scores(groups), candidates(groups)
    shuffled = [rows.sample(fraction=1, shuffle=True, seed=5) for rows in inputs]
    assert probelm(*inputs, seed=1, n_rounds=9).equals(probelm(*shuffled, seed=1, n_rounds=9))


# The file's ranks and the costs of a group's candidates, the plausible one first.
Ranked = list[tuple[int, float]]


@st.composite
def ranked_groups(draw: st.DrawFn, max_size: int = 11) -> list[Ranked]:
    def group() -> Ranked:
        ranks = draw(st.lists(st.integers(2, 14), min_size=1, max_size=max_size - 1, unique=True))
        cost = st.sampled_from([-1.0, 0.0, 0.5, 0.5 + 1e-9, 2.0, inf])
        return [(rank, draw(cost)) for rank in [1, *sorted(ranks)]]

    return [group() for _ in range(draw(st.integers(1, 3)))]


def ranked_candidates(groups: list[Ranked]) -> pl.DataFrame:
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
        for g, group in enumerate(groups)
        for rank, cost in group
    ]
    return pl.DataFrame(rows, schema_overrides={"cost": pl.Float64})


def scored(groups: list[Ranked]) -> pl.DataFrame:
    rows = ranked_candidates(groups)
    return group_scores(rows.drop("cost"), rows.select("candidate_id", "cost"))


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
    values = {"accuracy": float(place == 1), "mrr": float(1 / place)}
    for name, gain, cut in (
        ("ndcg", graded, 99),
        ("ndcg_binary", binary, 99),
        ("ndcg_at_3", binary, 3),
    ):
        gains = [[gain(rank) for rank, _ in order] for order in orders]
        ideal = naive_dcg(sorted(gains[0], reverse=True), cut)
        values[name] = mean(naive_dcg(order_gains, cut) for order_gains in gains) / ideal
    return values


@given(ranked_groups(max_size=6))
def test_group_scores_are_those_of_the_formulas(groups: list[Ranked]) -> None:
    rows = scored(groups)
    assert rows.schema == GROUP_SCORES
    for row, group in zip(rows.iter_rows(named=True), groups, strict=True):
        assert {name: row[name] for name in RANKING_METRICS} == pytest.approx(naive(group))


@given(ranked_groups(max_size=6))
def test_random_group_scores_are_the_mean_over_all_orders(groups: list[Ranked]) -> None:
    rows = random_group_scores(ranked_candidates(groups))
    assert rows.schema == GROUP_SCORES
    for row, group in zip(rows.iter_rows(named=True), groups, strict=True):
        ranks = [rank for rank, _ in group]
        orders = permutations([float(place) for place in range(len(group))])
        of_orders = scored([list(zip(ranks, order, strict=True)) for order in orders])
        for name in RANKING_METRICS:
            assert row[name] == pytest.approx(of_orders[name].mean())


def test_group_scores_group_with_a_missing_cost_is_left_out() -> None:
    rows = ranked_candidates([[(1, 0.1), (2, 0.2)], [(1, 0.1), (2, 0.2)]])
    first_costs = rows.select("candidate_id", "cost").head(3)
    assert group_scores(rows.drop("cost"), first_costs)["pair_id"].to_list() == ["g0"]
    assert group_scores(rows.drop("cost"), first_costs.clear()).is_empty()


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
    columns = ["model", "setting", "metric", "value", "ci_low"]
    return pl.DataFrame(rows, schema=columns, orient="row", schema_overrides={"value": pl.Float64})


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=3, max_size=8))
def test_correlations_are_those_of_scipy(pairs: list[tuple[int, int]]) -> None:
    values = {
        (f"m{i}", setting, "mrr"): float(value)
        for i, pair in enumerate(pairs)
        for setting, value in zip(NAMES, pair, strict=True)
    }
    table = correlations(measured(values), "setting", NAMES)
    assert table.schema == CORRELATIONS
    first, second = (list(column) for column in zip(*pairs, strict=True))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert table["pearson"].item() is None
    else:
        assert table["pearson"].item() == pytest.approx(pearsonr(first, second).statistic)


def test_correlations_values_meet_those_of_the_same_model_and_metric() -> None:
    statement = {("a", "statement", "mrr"): 1, ("a", "statement", "ndcg"): 2}
    other = {("a", "question", "ndcg"): 5, ("a", "question", "mrr"): 4, ("b", "question", "mrr"): 9}
    table = correlations(measured({**statement, **other}), "setting", NAMES)
    assert table.row(0) == ("statement", "question", pytest.approx(1), 2)


def test_correlations_undefined_is_null() -> None:
    values = {("a", "statement", "mrr"): None, ("a", "question", "mrr"): 1.0}
    assert correlations(measured(values), "setting", NAMES).row(0)[2:] == (None, 0)
    assert correlations(measured(values), "metric", ("mrr",)).is_empty()

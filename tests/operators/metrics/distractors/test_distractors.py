"""Min@n and Avg@n, against the formulas read naively; the table of a setting and its slices."""

from math import exp, inf
from statistics import mean
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.matching.preferred import N_HARDEST, add_beaten
from factsweep.operators.metrics.distractors.distractors import (
    AGGREGATIONS,
    METRICS,
    Aggregation,
    curve,
    distractors,
    knowledge,
    of_probability,
    with_n,
)
from factsweep.operators.metrics.shared.rows import deciles, pair_terms

# Few values, so that there are ties; -inf is what a model rules out.
LOGPROBS = st.sampled_from([-inf, -40.0, -3.0, -3.0 + 1e-12, -2.0, 0.0])


class Cloze(NamedTuple):
    """What a model says after one cloze: of the right answer, then of its distractors in order."""

    fact: str
    right: float
    wrong: list[float]


@st.composite
def clozes(draw: st.DrawFn) -> list[Cloze]:
    facts = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8))
    return [Cloze(f, draw(LOGPROBS), draw(st.lists(LOGPROBS, max_size=6))) for f in facts]


def answered(clozes: list[Cloze]) -> pl.DataFrame:
    """The canonical table `preferences`, joined with its prompts."""
    rows: list[dict[str, Any]] = [
        {
            "prompt_id": f"{number}",
            "relation_id": f"P{cloze.fact in 'ab'}",
            "pair_id": cloze.fact,
            "logprob": cloze.right,
            "open_logprob": cloze.right,
            "n_tokens": 1,
            "distractors": [
                {"entity_id": f"Q{i}", "label": f"l{i}", "logprob": logprob, "n_tokens": 1}
                for i, logprob in enumerate(cloze.wrong)
            ],
        }
        for number, cloze in enumerate(clozes)
    ]
    struct = pl.Struct(
        {"entity_id": pl.String, "label": pl.String, "logprob": pl.Float64, "n_tokens": pl.UInt32}
    )
    return pl.DataFrame(rows, schema_overrides={"distractors": pl.List(struct)})


def naive(clozes: list[Cloze], aggregation: str, n: int) -> dict[str, float]:
    """K of each fact that has n distractors after each of its clozes (Equations 2 and 3)."""
    means = {}
    for fact in {cloze.fact for cloze in clozes}:
        fact_clozes = [cloze for cloze in clozes if cloze.fact == fact]
        if all(len(cloze.wrong) >= n for cloze in fact_clozes):
            wins = [[cloze.right > wrong for wrong in cloze.wrong[:n]] for cloze in fact_clozes]
            means[fact] = mean(float(all(w)) if aggregation == "min" else mean(w) for w in wins)
    return means


@given(clozes(), st.integers(1, 7), st.sampled_from(AGGREGATIONS))
def test_terms_are_the_means_over_clozes(
    fact_clozes: list[Cloze], n: int, aggregation: Aggregation
) -> None:
    rows = with_n(add_beaten(answered(fact_clozes)), n)
    terms = pair_terms(rows, knowledge(aggregation, n).mean())
    assert terms["denominator"].to_list() == [1.0] * terms.height
    expected = naive(fact_clozes, aggregation, n)
    assert dict(terms.select("pair_id", "numerator").iter_rows()) == pytest.approx(expected)
    prompt = {"template_id": pl.lit("t"), "subject_index": pl.lit(0)}
    values = of_probability(answered(fact_clozes).with_columns(**prompt))
    probability = values.group_by("pair_id").agg(pl.mean("value"))
    expected = {
        fact: mean(exp(cloze.right) for cloze in fact_clozes if cloze.fact == fact)
        for fact in {cloze.fact for cloze in fact_clozes}
    }
    assert dict(probability.iter_rows()) == pytest.approx(expected)


@given(clozes())
def test_curve_is_the_mean_over_facts_for_every_n(fact_clozes: list[Cloze]) -> None:
    rows = {row["n"]: row for row in curve(add_beaten(answered(fact_clozes))).iter_rows(named=True)}
    expected = {n for n in range(1, 7) if naive(fact_clozes, "min", n)}
    assert set(rows) == expected
    for n, row in rows.items():
        assert row["n_facts"] == len(naive(fact_clozes, "min", n))
        assert row["min"] == pytest.approx(mean(naive(fact_clozes, "min", n).values()))
        assert row["avg"] == pytest.approx(mean(naive(fact_clozes, "avg", n).values()))


@given(clozes())
def test_hardest_are_the_most_plausible_in_order(fact_clozes: list[Cloze]) -> None:
    preferred = add_beaten(answered(fact_clozes))
    for cloze, hardest in zip(fact_clozes, preferred["hardest"], strict=True):
        expected = sorted(cloze.wrong, reverse=True)[:N_HARDEST]
        assert [distractor["logprob"] for distractor in hardest] == expected


def test_tie_is_no_win_and_an_impossible_distractor_is_beaten() -> None:
    ties = [Cloze("a", -3.0, [-3.0]), Cloze("b", -inf, [-inf])]
    assert add_beaten(answered(ties))["n_beaten"].to_list() == [[0], [0]]
    assert add_beaten(answered([Cloze("a", -40.0, [-inf])]))["n_beaten"].to_list() == [[1]]


def rows(**changed: list[object]) -> pl.DataFrame:
    """Three facts of two relations: two clozes of `a`, one of `b`, one of `c`."""
    columns = {
        "relation_id": ["P1", "P1", "P1", "P2"],
        "pair_id": ["a", "a", "b", "c"],
        "n_distractors": [2, 2, 1, 2],
        "n_beaten": [[1, 2], [0, 1], [1], [1, 1]],
        "n_tokens": [1, 2, 2, 1],
        "open_logprob": [0.0] * 4,
    }
    kinds = {"n_beaten": pl.List(pl.UInt32), "open_logprob": pl.Float64}
    return pl.DataFrame({**columns, **changed}, schema_overrides=kinds)


def details(values: dict[str, float | None], samples: str = "") -> pl.DataFrame:
    columns = {
        "pair_id": list(values),
        "popularity": list(values.values()),
        "sample": list(samples.ljust(len(values), "S")),
    }
    kinds = {"pair_id": pl.String, "popularity": pl.Float64, "sample": pl.String}
    return pl.DataFrame(columns, schema_overrides=kinds)


def value(table: pl.DataFrame, metric: str, part: str | None = None) -> tuple[float, int, int]:
    row = table.filter(pl.col("slice").eq_missing(pl.lit(part, pl.String)), metric=metric)
    numbers: tuple[float, int, int] = row.select("value", "n", "n_failed").row(0)
    return numbers


@pytest.fixture
def table() -> pl.DataFrame:
    popularity = details({"a": 1.0, "b": 2.0, "c": None, "unasked": 0.0})
    failed = pl.DataFrame({"relation_id": ["P1", "P3"], "n_failed": [2, 5]})
    return distractors(rows(), popularity, failed, seed=1, n_rounds=20)


def test_fact_with_too_few_distractors_is_left_out_and_counted(table: pl.DataFrame) -> None:
    assert value(table, "min_at_1") == (pytest.approx((0.5 + 1 + 1) / 3), 4, 7)
    assert value(table, "min_at_2") == (pytest.approx((0.5 + 0) / 2), 3, 7)
    assert value(table, "left_out_at_2") == (1.0, 4, 7)
    assert value(table, "left_out_at_1") == (0.0, 4, 7)
    names = set(table["metric"])
    assert {"avg_at_2", "probability"} < names <= {metric.name for metric in METRICS}
    assert "avg_at_5" not in names


def test_slices_have_their_own_numbers(table: pl.DataFrame) -> None:
    for metric, part, expected in (
        ("avg_at_2", "relation=P1", (0.75, 2, 2)),
        ("avg_at_2", "relation=P3", (None, 0, 5)),
        ("min_at_1", "popularity=0", (0.5, 2, 0)),  # among the facts that were asked
        ("min_at_1", "popularity=5", (1.0, 1, 0)),
        ("min_at_1", "tokens=1", (1.0, 2, 0)),
        ("min_at_1", "tokens=2", (0.5, 2, 0)),
    ):
        assert value(table, metric, part) == expected
    assert not table["slice"].is_in(["popularity=9"]).any()


def test_first_number_is_always_there_and_probability_where_it_is_known() -> None:
    none = rows(n_distractors=[0] * 4, n_beaten=[[]] * 4)
    table = distractors(none, details({"a": 1.0}), seed=1, n_rounds=20)
    assert value(table, "min_at_1") == (None, 0, 0)
    assert value(table, "left_out_at_1") == (3.0, 4, 0)
    unknown = distractors(rows(open_logprob=[None] * 4), details({}), seed=1, n_rounds=20)
    assert "probability" not in unknown["metric"]


def test_sample_is_a_slice_where_there_are_several(table: pl.DataFrame) -> None:
    assert not table["slice"].str.starts_with("sample=").any()
    two_samples = details({"a": 1.0, "b": 2.0, "c": 3.0}, "STT")
    sliced = distractors(rows(), two_samples, seed=1, n_rounds=20)
    assert value(sliced, "min_at_1", "sample=S") == (0.5, 2, 0)
    assert value(sliced, "min_at_1", "sample=T") == (1.0, 2, 0)


@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=1, max_size=40))
def test_deciles_rise_with_popularity_and_ties_share_one(values: list[int | None]) -> None:
    popularity = details({str(i): v if v is None else float(v) for i, v in enumerate(values)})
    decile_by_fact = {int(fact): decile for fact, decile in deciles(popularity).iter_rows()}
    assert set(decile_by_fact) == {i for i, v in enumerate(values) if v is not None}
    below = {i: sum(o is not None and o < values[i] for o in values) for i in decile_by_fact}  # type: ignore[operator]
    assert decile_by_fact == {i: 10 * below[i] // len(decile_by_fact) for i in decile_by_fact}

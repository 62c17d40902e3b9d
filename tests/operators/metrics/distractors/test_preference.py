"""Min@n and Avg@n, against the formulas read naively over lists of numbers."""

from math import exp, inf
from statistics import mean
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.matching.preferred import N_HARDEST, preferred
from factsweep.operators.metrics.distractors.distractors import (
    AGGREGATIONS,
    Aggregation,
    curve,
    knowledge_terms,
    numbers,
    probability_terms,
)

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


def answered(given: list[Cloze]) -> pl.DataFrame:
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
                {"entity_id": f"Q{i}", "label": f"l{i}", "logprob": each, "n_tokens": 1}
                for i, each in enumerate(cloze.wrong)
            ],
        }
        for number, cloze in enumerate(given)
    ]
    struct = pl.Struct(
        {"entity_id": pl.String, "label": pl.String, "logprob": pl.Float64, "n_tokens": pl.UInt32}
    )
    return pl.DataFrame(rows, schema_overrides={"distractors": pl.List(struct)})


def naive(given: list[Cloze], aggregation: str, n: int) -> dict[str, float]:
    """K of each fact that has n distractors after each of its clozes (Equations 2 and 3)."""
    found = {}
    for fact in {cloze.fact for cloze in given}:
        mine = [cloze for cloze in given if cloze.fact == fact]
        if all(len(cloze.wrong) >= n for cloze in mine):
            wins = [[cloze.right > each for each in cloze.wrong[:n]] for cloze in mine]
            found[fact] = mean(float(all(w)) if aggregation == "min" else mean(w) for w in wins)
    return found


@given(clozes(), st.integers(1, 7), st.sampled_from(AGGREGATIONS))
def test_terms_are_the_means_over_clozes(
    given: list[Cloze], n: int, aggregation: Aggregation
) -> None:
    terms = knowledge_terms(preferred(answered(given)), aggregation, n)
    assert terms["denominator"].to_list() == [1.0] * terms.height
    expected = naive(given, aggregation, n)
    assert dict(terms.select("pair_id", "numerator").iter_rows()) == pytest.approx(expected)


@given(clozes())
def test_curve_is_the_mean_over_facts_for_every_n(given: list[Cloze]) -> None:
    rows = {row["n"]: row for row in curve(preferred(answered(given))).iter_rows(named=True)}
    expected = {n for n in range(1, 7) if naive(given, "min", n)}
    assert set(rows) == expected
    for n, row in rows.items():
        assert row["n_facts"] == len(naive(given, "min", n))
        assert row["min"] == pytest.approx(mean(naive(given, "min", n).values()))
        assert row["avg"] == pytest.approx(mean(naive(given, "avg", n).values()))


@given(clozes())
def test_min_of_a_fact_never_rises_with_n_and_is_at_most_the_average(given: list[Cloze]) -> None:
    rows = preferred(answered(given))
    earlier: dict[str, float] = {}
    for n in numbers(rows, range(1, 7)):
        smallest, average = (
            dict(knowledge_terms(rows, each, n).select("pair_id", "numerator").iter_rows())
            for each in AGGREGATIONS
        )
        for fact, value in smallest.items():
            assert value <= average[fact]
            assert value <= earlier.get(fact, 1.0)
        earlier = smallest


@given(clozes())
def test_hardest_are_the_most_plausible_in_order(given: list[Cloze]) -> None:
    found = preferred(answered(given))
    for cloze, hardest in zip(given, found["hardest"], strict=True):
        expected = sorted(cloze.wrong, reverse=True)[:N_HARDEST]
        assert [each["logprob"] for each in hardest] == expected


def test_tie_is_no_win() -> None:
    both = [Cloze("a", -3.0, [-3.0]), Cloze("b", -inf, [-inf])]
    assert preferred(answered(both))["n_beaten"].to_list() == [[0], [0]]


def test_impossible_distractor_is_beaten_by_any_possible_answer() -> None:
    assert preferred(answered([Cloze("a", -40.0, [-inf])]))["n_beaten"].to_list() == [[1]]


@given(clozes())
def test_probability_is_the_mean_over_clozes(given: list[Cloze]) -> None:
    found = dict(probability_terms(answered(given)).select("pair_id", "numerator").iter_rows())
    expected = {
        fact: mean(exp(cloze.right) for cloze in given if cloze.fact == fact) for fact in found
    }
    assert found == pytest.approx(expected)

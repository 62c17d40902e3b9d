"""KaRR, against its formulas read naively over probabilities."""

from math import exp, log, sqrt
from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.distractors.baselines import KNOWN_ABOVE, karr, of_karr

LOGPROBS = st.floats(-60, 0)
FACTS = st.dictionaries(
    st.sampled_from("tuvwx"),
    st.tuples(
        st.lists(LOGPROBS, min_size=1, max_size=3),
        st.lists(LOGPROBS, max_size=4),
        st.lists(LOGPROBS, max_size=4),
    ),
    min_size=1,
)
Fact = tuple[list[float], list[float], list[float]]
NONE_FAILED = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})


def tables(facts: dict[str, Fact]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What engines say of each cloze, and of each fact's clozes by chance."""
    preferred = [
        {
            "prompt_id": f"{fact}.0.{number}",
            "pair_id": fact,
            "relation_id": f"P{fact in 'tu'}",
            "template_id": "P.0",
            "subject_index": number,
            "open_logprob": logprob,
        }
        for fact, (own, _, _) in facts.items()
        for number, logprob in enumerate(own)
    ]
    lists = dict.fromkeys(("subjects", "relations"), pl.List(pl.Float64))
    chance = [(fact, subjects, relations) for fact, (_, subjects, relations) in facts.items()]
    by_chance = pl.DataFrame(chance, schema={"pair_id": pl.String, **lists}, orient="row")
    return pl.DataFrame(preferred), by_chance


def naive(fact: Fact) -> float | None:
    """The geometric mean of the two risk ratios."""
    own, subjects, relations = (mean(map(exp, each)) if each else None for each in fact)
    if own is None or subjects is None or relations is None:
        return None
    return sqrt(own / subjects) * sqrt(own / relations)


@given(FACTS)
def test_karr_of_a_fact_is_the_geometric_mean_of_two_risk_ratios(facts: dict[str, Fact]) -> None:
    clozes = of_karr(*tables(facts))
    found = dict(clozes.group_by("pair_id").agg(pl.mean("value")).iter_rows())
    for name, fact in facts.items():
        expected = naive(fact)
        assert found[name] == (None if expected is None else pytest.approx(expected, rel=1e-9))


@given(FACTS)
def test_karr_rows_are_shares_and_means_of_the_facts_that_have_one(facts: dict[str, Fact]) -> None:
    clozes = of_karr(*tables(facts))
    rows = karr(clozes, NONE_FAILED, seed=0, n_rounds=3).filter(pl.col("slice").is_null())
    known = [value for value in map(naive, facts.values()) if value is not None]
    n = sum(len(fact[0]) for fact in facts.values() if naive(fact) is not None)
    share = mean(value > KNOWN_ABOVE for value in known) if known else None
    of_logs = mean(map(log, known)) if known else None
    assert rows["metric"].to_list() == ["karr", "log_karr"]
    assert rows["n"].to_list() == [n, n]
    assert rows["n_failed"].to_list() == [clozes.height - n] * 2
    if known and all(abs(value - KNOWN_ABOVE) > 1e-6 for value in known):
        assert rows["value"].to_list() == pytest.approx([share, of_logs], abs=1e-9)


def test_karr_of_a_pair_without_a_chance_row_is_null() -> None:
    preferred, by_chance = tables({"t": ([-1.0], [-2.0], [-2.0]), "u": ([-1.0], [-2.0], [-2.0])})
    assert of_karr(preferred, by_chance.head(1))["value"].null_count() == 1


def test_karr_is_not_there_where_no_chance_was_asked_for() -> None:
    preferred, by_chance = tables({"t": ([-1.0], [-2.0], [-2.0])})
    assert of_karr(preferred, by_chance.head(0)).is_empty()

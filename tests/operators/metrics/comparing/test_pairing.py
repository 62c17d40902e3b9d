"""Pairing: what two runs share is counted as sets are, and nothing is counted twice."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.comparing.paired import FACT, Shared, shared, unit_of

Tables = st.SearchStrategy[pl.DataFrame]


def named(answers: pl.DataFrame) -> pl.DataFrame:
    return answers.with_columns(
        prompt_id=pl.format("{}.{}.{}", "pair_id", "template_id", "subject_index")
    )


@given(data=st.data())
def test_shared_any_runs_equals_sets(data: st.DataObject, answer_tables: Tables) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    found = shared(first, second)
    one, other = set(first["prompt_id"]), set(second["prompt_id"])
    here, there = (set(each.select(FACT).rows()) for each in (first, second))
    assert (found.prompts, found.facts) == (len(one & other), len(here & there))
    assert (found.first_prompts, found.second_prompts) == (len(one - other), len(other - one))
    assert (found.first_facts, found.second_facts) == (len(here - there), len(there - here))
    of_both = (
        sum(row in here & there for row in each.select(FACT).rows()) for each in (first, second)
    )
    assert (found.own, found.other) == tuple(of_both)


@given(data=st.data())
def test_shared_by_relation_adds_up_to_everything(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    parts = [
        shared(first.filter(relation_id=each), second.filter(relation_id=each))
        for each in ("P0", "P1")
    ]
    assert Shared.total(parts) == shared(first, second)


@given(data=st.data())
def test_unit_of_is_prompts_unless_a_shared_fact_would_be_lost(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    kept = first.join(second, on="prompt_id", how="semi").select(FACT).unique().height
    lost = shared(first, second).facts - kept
    assert unit_of(first, second) == ("fact" if lost else "prompt")


def test_unit_of_the_same_prompts_of_a_fact_is_prompts() -> None:
    run = pl.DataFrame({"prompt_id": ["a", "b"], "relation_id": ["P1"] * 2, "pair_id": ["t"] * 2})
    assert unit_of(run, run) == "prompt"

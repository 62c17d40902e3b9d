"""Two runs of the distractor measure side by side, against each run measured by itself."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.paired import known, paired_preferences
from factsweep.operators.metrics.distractors.distractors import (
    AGGREGATIONS,
    knowledge_terms,
    numbers,
)
from tests.messages import naming

SCHEMA = {
    **dict.fromkeys(("prompt_id", "relation_id", "pair_id"), pl.String),
    "n_distractors": pl.UInt32,
    "n_beaten": pl.List(pl.UInt32),
}


@st.composite
def runs(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two runs of the same clozes: as many distractors in both, others of them beaten."""
    facts = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8))
    rows: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for number, fact in enumerate(facts):
        n = draw(st.integers(0, 6))
        for run in rows:
            wins = draw(st.lists(st.booleans(), min_size=n, max_size=n))
            beaten = [sum(wins[: i + 1]) for i in range(n)]
            names = {"prompt_id": str(number), "relation_id": f"P{fact in 'ab'}", "pair_id": fact}
            run.append({**names, "n_distractors": n, "n_beaten": beaten})
    first, second = (pl.DataFrame(each, schema=SCHEMA) for each in rows)
    return first, second


@given(runs())
def test_terms_of_each_run_are_those_that_it_has_by_itself(
    both: tuple[pl.DataFrame, pl.DataFrame],
) -> None:
    found = paired_preferences(*both)
    for n in numbers(both[0]):
        for aggregation in AGGREGATIONS:
            mine = found.filter(metric=f"{aggregation}_at_{n}")
            for run, column in zip(both, ("first", "second"), strict=True):
                expected = knowledge_terms(run, aggregation, n)
                assert mine["pair_id"].to_list() == expected["pair_id"].to_list()
                assert mine[column].to_list() == pytest.approx(expected["numerator"].to_list())


@given(runs())
def test_terms_of_a_run_and_itself_do_not_differ(both: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    found = paired_preferences(both[0], both[0].reverse())
    assert (found["first"] == found["second"]).all()
    assert (found["squares"] == 0).all()


def run(*rows: tuple[str, list[int]]) -> pl.DataFrame:
    names = {"relation_id": "P1", "pair_id": "t"}
    return pl.DataFrame(
        [{"prompt_id": p, **names, "n_distractors": len(b), "n_beaten": b} for p, b in rows],
        schema=SCHEMA,
    )


def test_terms_count_only_what_both_runs_have() -> None:
    """A cloze of one run alone is left out, and n goes as far as the run with fewer distractors."""
    found = paired_preferences(run(("p", [1, 2]), ("q", [0, 0])), run(("p", [1])))
    assert found.select("metric", "first", "n_prompts").rows() == [
        ("min_at_1", 1.0, 1),
        ("avg_at_1", 1.0, 1),
    ]


def test_terms_by_fact_take_all_clozes_of_each_run() -> None:
    found = paired_preferences(run(("p", [1]), ("q", [0])), run(("r", [1])), unit="fact")
    assert (
        found.select("first", "second", "squares", "n_prompts").rows()
        == [(0.5, 1.0, None, None)] * 2
    )


def test_known_is_a_fact_whose_answer_beats_all_distractors() -> None:
    found = known(run(("p", [1, 2]), ("q", [1, 1]), ("r", [])))
    assert found.select("prompt_id", "correct").rows() == [("p", True), ("q", False)]


def test_terms_of_a_prompt_that_stands_twice_are_refused() -> None:
    twice = run(("p", [1]), ("p", [0]))
    with pytest.raises(InputError, match=naming("prompt_id")):
        paired_preferences(run(("p", [1])), twice)

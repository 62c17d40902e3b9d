"""Two runs side by side, against sets, and each metric of each run by itself."""

from itertools import product
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.paired import (
    FACT,
    PAIRED,
    SharedCounts,
    count_shared,
    mark_known,
    paired_calibration_terms,
    paired_preferences,
    paired_terms,
    unit_of,
)
from factsweep.operators.metrics.distractors.distractors import (
    AGGREGATIONS,
    knowledge,
    numbers,
    with_n,
)
from factsweep.operators.metrics.shared.rows import pair_terms
from factsweep.operators.schemas import schema
from tests.messages import naming
from tests.operators.metrics.scalars import (
    Metric,
    Tables,
    acc_at_1,
    brier,
    consist,
    coverage_maximum,
    coverage_oracle,
    named,
    one_word_ratio,
    ovconf,
)

ROBUST = 0.5


def coverage_robust(answers: pl.DataFrame) -> float | None:
    shares = [
        pair["correct"].mean() >= ROBUST  # type: ignore[operator]
        for pair in answers.partition_by("relation_id", "pair_id")
    ]
    return sum(shares) / len(shares) if shares else None


METRICS: dict[str, Metric] = {
    "acc_at_1": acc_at_1,
    "one_word_ratio": one_word_ratio,
    "consist": consist,
    "coverage_oracle": coverage_oracle,
    "coverage_robust": coverage_robust,
    "coverage_maximum": coverage_maximum,
}


@given(data=st.data())
def test_shared_any_runs_equals_sets_and_decides_the_unit(
    data: st.DataObject, answer_tables: Tables
) -> None:
    runs = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    counts = count_shared(*runs)
    first, second = (set(run["prompt_id"]) for run in runs)
    first_facts, second_facts = (set(run.select(FACT).rows()) for run in runs)
    common_facts = first_facts & second_facts
    assert (counts.prompts, counts.facts) == (len(first & second), len(common_facts))
    assert (counts.first_prompts, counts.second_prompts) == (
        len(first - second),
        len(second - first),
    )
    assert counts.first_facts == len(first_facts - second_facts)
    assert counts.second_facts == len(second_facts - first_facts)
    n_prompts = [sum(row in common_facts for row in run.select(FACT).rows()) for run in runs]
    assert [counts.own, counts.other] == n_prompts
    parts = [count_shared(*(run.filter(relation_id=name) for run in runs)) for name in ("P0", "P1")]
    assert SharedCounts.total(parts) == counts
    paired_facts = runs[0].join(runs[1], on="prompt_id", how="semi").select(FACT).unique()
    assert unit_of(*runs) == ("prompt" if paired_facts.height == len(common_facts) else "fact")


def value(paired: pl.DataFrame, metric: str, run: str) -> float | None:
    rows = paired.filter(metric=metric)
    total = rows["denominator"].sum()
    return rows[run].sum() / total if total else None


@given(data=st.data())
def test_paired_terms_any_runs_give_the_metrics_on_shared_prompts(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    paired = paired_terms(first, second, robust_share=ROBUST)
    assert paired.schema == PAIRED
    for run, prompts in {
        "first": first.join(second, on="prompt_id", how="semi"),
        "second": second.join(first, on="prompt_id", how="semi"),
    }.items():
        for metric, function in METRICS.items():
            assert value(paired, metric, run) == pytest.approx(function(prompts))
    second_rows = {row["prompt_id"]: row for row in second.iter_rows(named=True)}
    for row in paired.filter(metric="acc_at_1").iter_rows(named=True):
        prompts = [
            (prompt, second_rows[prompt["prompt_id"]])
            for prompt in first.filter(pair_id=row["pair_id"]).iter_rows(named=True)
            if prompt["prompt_id"] in second_rows
        ]
        n_turned = sum(old["correct"] != new["correct"] for old, new in prompts)
        n_reworded = sum((old["n_lemmas"] == 1) != (new["n_lemmas"] == 1) for old, new in prompts)
        assert row["n_prompts"] == len(prompts)
        assert row["squares"] == pytest.approx(n_turned / len(prompts))
        (words,) = paired.filter(metric="one_word_ratio", pair_id=row["pair_id"]).to_dicts()
        assert (words["squares"], words["denominator"]) == (n_reworded, len(prompts))


@given(data=st.data())
def test_paired_terms_by_fact_are_the_metrics_of_the_shared_facts(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    paired = paired_terms(first, second, robust_share=ROBUST, unit="fact")
    assert paired.schema == PAIRED
    shared_prompts = {
        "first": first.join(second, on=FACT, how="semi"),
        "second": second.join(first, on=FACT, how="semi"),
    }
    for metric, function in METRICS.items():
        rows = paired.filter(metric=metric)
        for run, prompts in shared_prompts.items():
            # Consist is of the facts that have two prompts in both runs.
            answers = prompts.join(rows, on=FACT, how="semi") if metric == "consist" else prompts
            expected = function(answers)
            if metric == "one_word_ratio" and expected is not None:  # each fact once
                shares = [one_word_ratio(fact) for fact in answers.partition_by(FACT)]
                expected = sum(map(float, shares)) / len(shares)
            assert value(paired, metric, run) == pytest.approx(expected)
    assert paired["squares"].null_count() == paired["n_prompts"].null_count() == paired.height


@given(data=st.data())
def test_paired_calibration_terms_any_runs_give_the_metrics(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    first, second = data.draw(calibration_tables), data.draw(calibration_tables)
    # A prompt's id does not say its relation here; take the first run's.
    second = second.drop("relation_id", "pair_id").join(
        first.select("prompt_id", "relation_id", "pair_id"), on="prompt_id"
    )
    first = first.join(second, on="prompt_id", how="semi")
    renamed = second.with_columns(pl.col("prompt_id") + "!")  # the same facts by other prompts
    by_prompt = paired_calibration_terms(first, second)
    by_fact = paired_calibration_terms(first, renamed, unit="fact")
    assert by_prompt.schema == by_fact.schema == PAIRED
    old, new = (
        {row["prompt_id"]: row["confidence"] - row["correct"] for row in run.to_dicts()}
        for run in (first, second)
    )
    changes = {
        "ovconf": [new[prompt] - old[prompt] for prompt in old],
        "brier": [new[prompt] ** 2 - old[prompt] ** 2 for prompt in old],
    }
    for metric, function in {"ovconf": ovconf, "brier": brier}.items():
        # Every fact has one prompt here, so the mean over facts is that over prompts.
        for paired in (by_prompt, by_fact):
            assert value(paired, metric, "first") == pytest.approx(function(first))
            assert value(paired, metric, "second") == pytest.approx(function(second))
        squares = by_prompt.filter(metric=metric)["squares"].sum()
        assert squares == pytest.approx(sum(change**2 for change in changes[metric]))


def test_paired_terms_equally_good_templates_take_the_first_by_id() -> None:
    prompts = {
        "prompt_id": ["1", "2", "3", "4"],
        "relation_id": ["P1"] * 4,
        "pair_id": ["t", "t", "u", "u"],
        "template_id": ["b", "a", "b", "a"],
        "key": [None] * 4,
        "n_lemmas": [0] * 4,
    }
    run = pl.DataFrame({**prompts, "correct": [True, False, False, True]})
    rows = paired_terms(run, run, robust_share=1.0).filter(metric="coverage_maximum")
    assert rows.select("pair_id", "first").rows() == [("t", 0.0), ("u", 1.0)]


PREFERRED = schema(
    "prompt_id text, relation_id text, pair_id text, n_distractors uint32, n_beaten uint32[]"
)


@st.composite
def run_pairs(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame]:
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
    first, second = (pl.DataFrame(run_rows, schema=PREFERRED) for run_rows in rows)
    return first, second


@given(run_pairs())
def test_terms_of_each_run_are_those_that_it_has_by_itself(
    runs: tuple[pl.DataFrame, pl.DataFrame],
) -> None:
    paired = paired_preferences(*runs)
    for n, aggregation in product(numbers(runs[0]), AGGREGATIONS):
        rows = paired.filter(metric=f"{aggregation}_at_{n}")
        for run, column in zip(runs, ("first", "second"), strict=True):
            expected = pair_terms(with_n(run, n), knowledge(aggregation, n).mean())
            assert rows["pair_id"].to_list() == expected["pair_id"].to_list()
            assert rows[column].to_list() == pytest.approx(expected["numerator"].to_list())
    with_itself = paired_preferences(runs[0], runs[0].reverse())
    assert (with_itself["first"] == with_itself["second"]).all()
    assert (with_itself["squares"] == 0).all()


def run(*rows: tuple[str, list[int]]) -> pl.DataFrame:
    names = {"relation_id": "P1", "pair_id": "t"}
    return pl.DataFrame(
        [{"prompt_id": p, **names, "n_distractors": len(b), "n_beaten": b} for p, b in rows],
        schema=PREFERRED,
    )


def test_terms_count_only_what_both_runs_have() -> None:
    """A cloze of one run alone is left out, and n goes as far as the run with fewer distractors."""
    paired = paired_preferences(run(("p", [1, 2]), ("q", [0, 0])), run(("p", [1])))
    assert paired.select("metric", "first", "n_prompts").rows() == [
        ("min_at_1", 1.0, 1),
        ("avg_at_1", 1.0, 1),
    ]


def test_terms_by_fact_take_all_clozes_of_each_run() -> None:
    paired = paired_preferences(run(("p", [1]), ("q", [0])), run(("r", [1])), unit="fact")
    rows = paired.select("first", "second", "squares", "n_prompts").rows()
    assert rows == [(0.5, 1.0, None, None)] * 2


def test_known_is_a_fact_whose_answer_beats_all_distractors() -> None:
    clozes = mark_known(run(("p", [1, 2]), ("q", [1, 1]), ("r", [])))
    assert clozes.select("prompt_id", "correct").rows() == [("p", True), ("q", False)]


def test_terms_of_a_prompt_that_stands_twice_are_refused() -> None:
    twice = run(("p", [1]), ("p", [0]))
    with pytest.raises(InputError, match=naming("prompt_id")):
        paired_preferences(run(("p", [1])), twice)

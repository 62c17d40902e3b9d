"""Two runs side by side, against sets, and each metric of each run by itself."""

from typing import Any, get_args

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.paired import (
    FACT,
    PAIRED,
    Shared,
    Unit,
    known,
    paired_calibration_terms,
    paired_preferences,
    paired_terms,
    shared,
    unit_of,
)
from factsweep.operators.metrics.distractors.distractors import (
    AGGREGATIONS,
    knowledge_terms,
    numbers,
)
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
        own["correct"].mean() >= ROBUST  # type: ignore[operator]
        for own in answers.partition_by("relation_id", "pair_id")
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
    one = first.join(second, on="prompt_id", how="semi")
    other = second.join(first, on="prompt_id", how="semi")
    for metric, function in METRICS.items():
        assert value(paired, metric, "first") == pytest.approx(function(one))
        assert value(paired, metric, "second") == pytest.approx(function(other))


@given(data=st.data())
def test_paired_terms_by_fact_are_the_metrics_of_the_shared_facts(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    paired = paired_terms(first, second, robust_share=ROBUST, unit="fact")
    assert paired.schema == PAIRED
    fact = ["relation_id", "pair_id"]
    one = first.join(second, on=fact, how="semi")
    other = second.join(first, on=fact, how="semi")
    for metric, function in METRICS.items():
        rows = paired.filter(metric=metric)
        for run, own in {"first": one, "second": other}.items():
            # Consist is of the facts that have two prompts in both runs.
            answers = own.join(rows, on=fact, how="semi") if metric == "consist" else own
            if metric == "one_word_ratio":  # each fact once
                shares = [one_word_ratio(each) for each in answers.partition_by(fact)]
                expected = sum(map(float, shares)) / len(shares) if shares else None
            else:
                expected = function(answers)
            assert value(paired, metric, run) == pytest.approx(expected)
    assert paired["squares"].null_count() == paired["n_prompts"].null_count() == paired.height


@given(data=st.data())
def test_paired_terms_by_fact_of_the_same_prompts_are_those_by_prompt(
    data: st.DataObject, complete_answer_tables: Tables
) -> None:
    first = named(data.draw(complete_answer_tables))
    keys = data.draw(st.permutations(first["correct"].to_list()))
    second = first.with_columns(correct=pl.Series(keys, dtype=pl.Boolean))
    by_prompt, by_fact = (
        paired_terms(first, second, robust_share=ROBUST, unit=unit) for unit in get_args(Unit)
    )
    for metric in ("acc_at_1", "consist", "coverage_oracle", "coverage_robust"):
        one, other = (each.filter(metric=metric) for each in (by_prompt, by_fact))
        columns = ("pair_id", "first", "second", "denominator")
        assert one.select(columns).equals(other.select(columns))


@given(data=st.data())
def test_paired_terms_squares_are_those_of_the_prompts_changes(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    paired = paired_terms(first, second, robust_share=ROBUST)
    other = {row["prompt_id"]: row for row in second.iter_rows(named=True)}
    for row in paired.filter(metric="acc_at_1").iter_rows(named=True):
        prompts = [
            (each, other[each["prompt_id"]])
            for each in first.filter(pair_id=row["pair_id"]).iter_rows(named=True)
            if each["prompt_id"] in other
        ]
        turned = sum(one["correct"] != two["correct"] for one, two in prompts)
        reworded = sum((one["n_lemmas"] == 1) != (two["n_lemmas"] == 1) for one, two in prompts)
        assert row["n_prompts"] == len(prompts)
        assert row["squares"] == pytest.approx(turned / len(prompts))
        (words,) = paired.filter(metric="one_word_ratio", pair_id=row["pair_id"]).to_dicts()
        assert (words["squares"], words["denominator"]) == (reworded, len(prompts))


@given(data=st.data())
def test_paired_terms_by_relation_are_those_of_everything(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    whole = paired_terms(first, second, robust_share=ROBUST)
    parts = [
        paired_terms(
            first.filter(relation_id=each), second.filter(relation_id=each), robust_share=ROBUST
        )
        for each in ("P0", "P1")
    ]
    order = ("metric", "relation_id", "pair_id")
    assert pl.concat(parts).sort(order).equals(whole.sort(order))


@given(data=st.data())
def test_paired_calibration_terms_any_runs_give_the_metrics(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    first, second = data.draw(calibration_tables), data.draw(calibration_tables)
    # A prompt's id does not say its relation here; take the first run's.
    second = second.drop("relation_id", "pair_id").join(
        first.select("prompt_id", "relation_id", "pair_id"), on="prompt_id"
    )
    paired = paired_calibration_terms(first, second)
    assert paired.schema == PAIRED
    one = first.join(second, on="prompt_id", how="semi")
    for metric, function in {"ovconf": ovconf, "brier": brier}.items():
        assert value(paired, metric, "first") == pytest.approx(function(one))
        assert value(paired, metric, "second") == pytest.approx(function(second))
    gap = {row["prompt_id"]: row["confidence"] - row["correct"] for row in one.to_dicts()}
    after = {row["prompt_id"]: row["confidence"] - row["correct"] for row in second.to_dicts()}
    changes = {
        "ovconf": [after[each] - gap[each] for each in gap],
        "brier": [after[each] ** 2 - gap[each] ** 2 for each in gap],
    }
    for metric, each in changes.items():
        squares = paired.filter(metric=metric)["squares"].sum()
        assert squares == pytest.approx(sum(change**2 for change in each))


@given(data=st.data())
def test_paired_calibration_terms_by_fact_are_means_over_each_runs_own_prompts(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    first, second = data.draw(calibration_tables), data.draw(calibration_tables)
    second = second.with_columns(pl.col("prompt_id") + "!")  # the same facts by other prompts
    paired = paired_calibration_terms(first, second, unit="fact")
    fact = ["relation_id", "pair_id"]
    one, other = (
        own.join(theirs, on=fact, how="semi") for own, theirs in ((first, second), (second, first))
    )
    # Every fact has one prompt here, so the mean over facts is that over prompts.
    for metric, function in {"ovconf": ovconf, "brier": brier}.items():
        assert value(paired, metric, "first") == pytest.approx(function(one))
        assert value(paired, metric, "second") == pytest.approx(function(other))


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
    first, second = (pl.DataFrame(each, schema=PREFERRED) for each in rows)
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
    itself = paired_preferences(both[0], both[0].reverse())
    assert (itself["first"] == itself["second"]).all()
    assert (itself["squares"] == 0).all()


def run(*rows: tuple[str, list[int]]) -> pl.DataFrame:
    names = {"relation_id": "P1", "pair_id": "t"}
    return pl.DataFrame(
        [{"prompt_id": p, **names, "n_distractors": len(b), "n_beaten": b} for p, b in rows],
        schema=PREFERRED,
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
    columns = {"template_id": "a", "key": None, "n_lemmas": 0, "correct": True}
    answers = twice.select("prompt_id", *FACT).with_columns(
        **{k: pl.lit(v) for k, v in columns.items()}
    )
    with pytest.raises(InputError, match=naming("prompt_id")):
        paired_terms(answers.head(1), answers, robust_share=1.0)

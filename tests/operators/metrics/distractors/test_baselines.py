"""Precision@n, ROUGE-L, a judge and KaRR: against their definitions, read naively."""

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.distractors.baselines import (
    KNOWN_ABOVE,
    METRICS,
    WIDTHS,
    baselines,
    karr,
    of_judged,
    of_karr,
    of_texts,
    of_top_tokens,
    rouge_l,
)
from tests.operators.metrics.scalars import NONE_FAILED

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5).map(" ".join)


def continued(
    texts: list[list[str]], top_tokens: list[list[str]] | None = None, facts: str = ""
) -> pl.DataFrame:
    n = len(texts)
    return pl.DataFrame(
        {
            "prompt_id": [f"p{i}" for i in range(n)],
            "relation_id": ["P"] * n,
            "pair_id": list(facts) or [f"f{i}" for i in range(n)],
            "template_id": ["P.0"] * n,
            "subject_index": list(range(n)),
            "texts": texts,
            "top_tokens": top_tokens or [[]] * n,
        },
        schema_overrides={"texts": pl.List(pl.String), "top_tokens": pl.List(pl.String)},
    )


def by_configuration(values: pl.DataFrame, pair_id: str = "f0") -> dict[str, float | None]:
    pair_values = values.filter(pair_id=pair_id)
    return dict(pair_values.select("hyperparameters", "value").iter_rows())


def naive_rouge(reference: str, text: str) -> float:
    """The F-measure of the longest common subsequence of words, by its recursive definition."""

    def longest(a: Sequence[str], b: Sequence[str]) -> int:
        if not a or not b:
            return 0
        if a[0] == b[0]:
            return 1 + longest(a[1:], b[1:])
        return max(longest(a[1:], b), longest(a, b[1:]))

    a, b = reference.split(), text.split()
    common = longest(a, b)
    return 2 * common / (len(a) + len(b)) if common else 0.0


@given(st.lists(st.tuples(WORDS, WORDS), max_size=5))
def test_rouge_is_that_of_the_longest_common_subsequence(pairs: list[tuple[str, str]]) -> None:
    assert rouge_l(pairs) == pytest.approx([naive_rouge(*pair) for pair in pairs])


@given(st.lists(WORDS, min_size=1, max_size=6), st.lists(WORDS, min_size=1, max_size=3))
def test_measure_of_texts_is_the_best_of_the_first_beams_and_labels(
    texts: list[str], labels: list[str]
) -> None:
    values = by_configuration(
        of_texts(continued([texts]), {"f0": labels}, "rouge_l", rouge_l, WIDTHS)
    )
    for name, value in values.items():
        first = texts[: int(name.removeprefix("width="))]
        best = max(naive_rouge(label, text) for label in labels for text in first)
        assert value == pytest.approx(best)
    assert max(int(name.removeprefix("width=")) for name in values) == len(texts)


@given(st.lists(st.sampled_from([" a", "b", "A", " a b"]), min_size=1, max_size=8))
def test_precision_asks_whether_a_label_is_among_the_likeliest_tokens(tokens: list[str]) -> None:
    values = by_configuration(of_top_tokens(continued([[]], [tokens]), {"f0": ["a", "a c"]}))
    for name, value in values.items():
        assert value == float(" a" in tokens[: int(name.removeprefix("n="))])


def test_judge_sees_cloze_labels_and_the_first_beams_alone() -> None:
    all_questions: list[tuple[str, Sequence[str], str]] = []

    def judge(questions: Sequence[tuple[str, Sequence[str], str]]) -> list[float | None]:
        all_questions.extend(questions)
        return [float(text == "yes") for _, _, text in questions]

    continuations = continued([["no", "yes", "no", "no", "no", "yes"], ["no"] * 6])
    values = of_judged(continuations, {"f0": ["x"], "f1": ["y"]}, {"p0": "c", "p1": "d"}, judge)
    assert all_questions[0] == ("c", ["x"], "no")
    assert len(all_questions) == 10
    assert by_configuration(values) == {"width=1": 0.0, "width=2": 1.0, "width=5": 1.0}
    assert by_configuration(values, "f1") == {"width=1": 0.0, "width=2": 0.0, "width=5": 0.0}


def test_numbers_of_continuations_are_means_over_clozes_then_facts() -> None:
    continuations = continued([[], [], []], [["a"], ["b"], ["b"]], facts="ttu")
    rows = baselines(
        of_top_tokens(continuations, {"t": ["a"], "u": ["b"]}), NONE_FAILED, seed=1, n_rounds=10
    )
    (row,) = rows.filter(pl.col("slice").is_null()).select("metric", "value", "n").rows()
    assert row == ("precision_at_1", 0.75, 3)


def test_number_is_that_of_the_widest_beam_which_its_variant_names() -> None:
    values = of_texts(continued([["x", "a"]]), {"f0": ["a"]}, "rouge_l", rouge_l, WIDTHS)
    rows = baselines(values, NONE_FAILED, seed=1, n_rounds=10).filter(pl.col("slice").is_null())
    assert rows.select("variant", "metric", "value").rows() == [("width=2", "rouge_l", 1.0)]


def test_continuation_without_verdict_counts_for_nothing_and_such_a_cloze_has_failed() -> None:
    verdicts = iter([None, 1.0, None])
    labels, clozes = {"f0": ["a"], "f1": ["a"]}, {"p0": "", "p1": ""}
    continuations = continued([["a", "b"], ["a"]])
    values = of_judged(
        continuations, labels, clozes, lambda questions: [next(verdicts) for _ in questions]
    )
    assert by_configuration(values) == {"width=1": None, "width=2": 1.0}
    assert by_configuration(values, "f1") == {"width=1": None, "width=2": None}
    rows = baselines(values, NONE_FAILED, seed=1, n_rounds=10).filter(pl.col("slice").is_null())
    assert rows.select("value", "n", "n_failed").row(0) == (1.0, 1, 1)
    assert set(rows["metric"]) <= {metric.name for metric in METRICS}


def test_without_continuations_there_are_no_rows() -> None:
    none = continued([])
    values = pl.concat([of_top_tokens(none, {}), of_texts(none, {}, "rouge_l", rouge_l, WIDTHS)])
    assert values.is_empty()
    assert baselines(values, NONE_FAILED, seed=1, n_rounds=10).is_empty()


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
        for fact, (logprobs, _, _) in facts.items()
        for number, logprob in enumerate(logprobs)
    ]
    lists = dict.fromkeys(("subjects", "relations"), pl.List(pl.Float64))
    chance = [(fact, subjects, relations) for fact, (_, subjects, relations) in facts.items()]
    by_chance = pl.DataFrame(chance, schema={"pair_id": pl.String, **lists}, orient="row")
    return pl.DataFrame(preferred), by_chance


def naive(fact: Fact) -> float | None:
    """The geometric mean of the two risk ratios."""
    right, subjects, relations = (
        mean(map(exp, logprobs)) if logprobs else None for logprobs in fact
    )
    if right is None or subjects is None or relations is None:
        return None
    return sqrt(right / subjects) * sqrt(right / relations)


@given(FACTS)
def test_karr_of_a_fact_is_the_geometric_mean_of_two_risk_ratios(facts: dict[str, Fact]) -> None:
    clozes = of_karr(*tables(facts))
    karr_by_fact = dict(clozes.group_by("pair_id").agg(pl.mean("value")).iter_rows())
    for name, fact in facts.items():
        expected = naive(fact)
        assert karr_by_fact[name] == (
            None if expected is None else pytest.approx(expected, rel=1e-9)
        )


@given(FACTS)
def test_karr_rows_are_shares_and_means_of_the_facts_that_have_one(facts: dict[str, Fact]) -> None:
    clozes = of_karr(*tables(facts))
    rows = karr(clozes, NONE_FAILED, seed=0, n_rounds=3).filter(pl.col("slice").is_null())
    defined = [value for value in map(naive, facts.values()) if value is not None]
    n = sum(len(fact[0]) for fact in facts.values() if naive(fact) is not None)
    share = mean(value > KNOWN_ABOVE for value in defined) if defined else None
    of_logs = mean(map(log, defined)) if defined else None
    assert rows["metric"].to_list() == ["karr", "log_karr"]
    assert rows["n"].to_list() == [n, n]
    assert rows["n_failed"].to_list() == [clozes.height - n] * 2
    if defined and all(abs(value - KNOWN_ABOVE) > 1e-6 for value in defined):
        assert rows["value"].to_list() == pytest.approx([share, of_logs], abs=1e-9)


def test_karr_without_a_chance_row_is_null_and_without_any_not_there() -> None:
    preferred, by_chance = tables({"t": ([-1.0], [-2.0], [-2.0]), "u": ([-1.0], [-2.0], [-2.0])})
    assert of_karr(preferred, by_chance.head(1))["value"].null_count() == 1
    assert of_karr(preferred, by_chance.head(0)).is_empty()

"""pass@k against the binomials, its laws, and the samples that each benchmark counts."""

import math
import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import GENERATE
from factsweep.operators.metrics.answer_sets import mark_complete
from factsweep.operators.metrics.pass_at_k import KS, pass_rows
from tests.builders import frame

NO_FAILURES = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})


def values(samples: pl.DataFrame) -> dict[int, float]:
    """pass@k over everything, by k."""
    rows = pass_rows(samples, NO_FAILURES, seed=1, n_rounds=20).filter(pl.col("slice").is_null())
    names = rows["metric"].str.strip_prefix("pass_at_").cast(pl.Int64)
    return dict(zip(names, rows["value"], strict=True))


@pytest.mark.parametrize(("n", "right"), [(10, 3), (10, 0), (10, 10), (2, 1)])
def test_pass_at_k_against_the_binomials(n: int, right: int) -> None:
    expected = {k: 1 - math.comb(n - right, k) / math.comb(n, k) for k in KS if k <= n}
    assert values(frame("sampled", ("a.0", "r", "a", n, right))) == pytest.approx(expected)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.randoms())
def test_pass_at_k_never_falls_with_k_whatever_the_order(
    n_right: list[int], shuffle: random.Random
) -> None:
    rows = [(f"{n}.0", f"r{n % 2}", f"p{n}", 100, right) for n, right in enumerate(n_right)]
    by_k = values(frame("sampled", *rows))
    assert list(by_k) == list(KS)
    assert sorted(by_k.values()) == pytest.approx(list(by_k.values()))
    shuffle.shuffle(rows)
    assert values(frame("sampled", *rows)) == by_k


def test_pass_at_k_stops_at_the_fewest_samples_of_a_prompt() -> None:
    assert set(values(frame("sampled", ("a.0", "r", "a", 25, 1), ("b.0", "r", "b", 4, 1)))) == {
        1,
        2,
    }


def test_pass_at_k_counts_prompts_without_samples_as_failed() -> None:
    failed = pl.DataFrame({"relation_id": ["r"], "n_failed": [3]})
    rows = pass_rows(frame("sampled", ("a.0", "r", "a", 1, 1)), failed, seed=1, n_rounds=20)
    assert rows.select("n", "n_failed").row(0) == (1, 3)
    assert pass_rows(frame("sampled"), None, seed=1, n_rounds=20).is_empty()


def test_pass_at_k_of_every_benchmark_that_generates() -> None:
    for name, method in METHODS.items():
        names = {metric.name for metric in method.measure.metrics}
        if method.ask.ability == GENERATE and name != "judge":  # a judge is asked once
            assert {"pass_at_1", "pass_at_100"} <= names
            assert "sampled" in method.measure.matched


def test_mark_complete_reads_samples_as_kamel_reads_answers() -> None:
    rows = [
        {
            "pair_id": f"P277.{name}",
            "relation_id": "P277",
            "objects": [{"object_id": label, "labels": [label]}],
            "split": "test",
        }
        for name, label in (("a", "C"), ("b", "C++"))
    ]
    pairs = frame("pairs", *rows)
    answers = pl.DataFrame(
        {"pair_id": ["P277.b", "P277.b", "P277.a", "P277.b"], "text": ["C++%", "C%", "C%", None]}
    )
    # Labels of the other query tell C from C++, as in the greedy answers.
    assert mark_complete(answers, pairs)["correct"].to_list() == [True, False, True, False]
    assert mark_complete(answers.clear(), pairs).is_empty()

"""The metrics of answers, against reading them off pair by pair, and drawing one by one."""

from collections.abc import Callable
from itertools import combinations
from statistics import mean

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from factsweep.operators.metrics.belief import answers as module
from factsweep.operators.metrics.belief.answers import (
    DRAWS,
    By,
    Draw,
    acc_at_1_terms,
    consist_terms,
    fluctuation,
    match_counts,
    pair_draws,
    template_draws,
    template_rates,
)
from tests.operators.metrics.scalars import (
    Key,
    Tables,
    acc_at_1,
    consist,
    coverage_maximum,
    coverage_oracle,
    match,
    one_word_ratio,
)


def right_pairs(answers: pl.DataFrame) -> set[str]:
    return set(answers.filter("correct")["pair_id"])


@given(data=st.data())
def test_metrics_of_any_answers_equal_a_naive_reading(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables.filter(len))
    pairs = [rows["correct"].to_list() for rows in answers.partition_by("pair_id")]
    assert acc_at_1(answers) == pytest.approx(mean(map(mean, pairs)))
    lengths = answers["n_lemmas"].to_list()
    assert one_word_ratio(answers) == pytest.approx(lengths.count(1) / len(lengths))
    assert coverage_oracle(answers) == pytest.approx(mean(map(any, pairs)))
    best = sum(
        max(len(right_pairs(template)) for template in relation.partition_by("template_id"))
        for relation in answers.partition_by("relation_id")
    )
    assert coverage_maximum(answers) == pytest.approx(best / len(pairs))


def test_metrics_of_no_answers_are_none(no_answers: pl.DataFrame) -> None:
    for metric in (acc_at_1, one_word_ratio, coverage_maximum, coverage_oracle, consist):
        assert metric(no_answers) is None
    for draw in DRAWS:
        assert fluctuation(no_answers, draw=draw, seed=1) == (None, None)


def equality(a: Key, b: Key) -> bool:
    return a is not None and a == b


@pytest.mark.parametrize(("by", "same"), [("match", match), ("equality", equality)])
@given(data=st.data())
def test_consist_any_answers_equals_all_comparisons(
    by: By, same: Callable[[Key, Key], bool], data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    keys_by_pair = {
        rows["pair_id"][0]: rows["key"].to_list() for rows in answers.partition_by("pair_id")
    }
    expected = {
        pair: mean(same(a, b) for a, b in combinations(keys, 2))
        for pair, keys in keys_by_pair.items()
        if len(keys) > 1
    }
    terms = consist_terms(answers, by=by).select("pair_id", "numerator")
    assert dict(terms.iter_rows()) == pytest.approx(expected)
    overall = mean(expected.values()) if expected else None
    assert consist(answers, by=by) == pytest.approx(overall)


@pytest.mark.parametrize("within", [["template_id"], ["subject_index"], ["template_id", "correct"]])
@given(data=st.data())
def test_match_counts_within_groups_compare_what_agrees_in_blocks_of_any_size(
    within: list[str], data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    expected = {}
    for pair in answers.partition_by("pair_id"):
        compared = [
            match(a["key"], b["key"])
            for a, b in combinations(pair.to_dicts(), 2)
            if all(a[name] == b[name] for name in within)
        ]
        expected[pair["pair_id"][0]] = (sum(compared), len(compared))
    counts = match_counts(answers, within=within)
    assert {pair: (n, n_compared) for _, pair, n, n_compared in counts.iter_rows()} == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_COMPARISONS_PER_BLOCK", 2)
        assert match_counts(answers, within=within).equals(counts)


def test_match_counts_of_one_group_of_many_answers_are_made_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n, most = 20, 100
    keys = ["\x1f" + "a\x1f" * length for length in range(1, n + 1)]
    monkeypatch.setattr(module, "_COMPARISONS_PER_BLOCK", most)
    counts = pl.DataFrame({"cell": 0, "n": 1, "key": keys})
    sizes = [block.height for block in module._containments(counts)]
    assert sum(sizes) == n * (n - 1) // 2
    assert max(sizes) <= most
    answers = pl.DataFrame({"relation_id": "P1", "pair_id": "t", "key": keys})
    assert match_counts(answers)["n_matches"].item() == sum(sizes)


def test_consist_of_equal_empty_and_single_answers() -> None:
    for keys, expected in ((["\x1fa\x1f"] * 3, 1.0), ([None] * 3, 0.0), (["\x1fa\x1f"], None)):
        columns = {"relation_id": "P1", "pair_id": "t", "key": keys}
        assert consist(pl.DataFrame(columns, schema_overrides={"key": pl.String})) == expected


def example(n_pairs: int = 12, n_templates: int = 4) -> pl.DataFrame:
    """Two relations; pairs of one to three names; rates differ between templates and pairs."""
    rng = np.random.default_rng(5)
    rows = [
        (f"P{pair % 2}", f"t{pair}", f"P{pair % 2}.{template}", rng.random() < template / 4)
        for pair in range(n_pairs)
        for template in range(n_templates)
        for _ in range(1 + pair % 3)
    ]
    names = ["relation_id", "pair_id", "template_id", "correct"]
    return pl.DataFrame(rows, schema=names, orient="row")


def naive_draw(answers: pl.DataFrame, draw: Draw, rng: np.random.Generator) -> float:
    picked = []
    for relation in answers.partition_by("relation_id"):
        template = rng.choice(relation["template_id"].unique().sort().to_numpy())
        pool = relation.filter(template_id=str(template)) if draw == "template" else relation
        picked += [rng.choice(pair["correct"].to_numpy()) for pair in pool.partition_by("pair_id")]
    return float(np.mean(picked))


def drawn(answers: pl.DataFrame, draw: Draw, n_draws: int = 20_000) -> NDArray[np.float64]:
    if draw == "template":
        return template_draws(template_rates(answers), n_draws=n_draws, seed=3)
    return pair_draws(acc_at_1_terms(answers), n_draws=n_draws, seed=3)


@pytest.mark.parametrize("draw", DRAWS)
def test_fluctuation_tiny_example_agrees_with_naive_draws(draw: Draw) -> None:
    answers, rng = example(), np.random.default_rng(8)
    naive = np.array([naive_draw(answers, draw, rng) for _ in range(600)])
    fast = drawn(answers, draw)
    assert fast.mean() == pytest.approx(naive.mean(), abs=4 * naive.std() / 600**0.5)
    assert fast.std() == pytest.approx(naive.std(), rel=0.15)
    expected = float(np.ptp(fast)), float(fast.std())
    assert fluctuation(answers, draw=draw, n_draws=20_000, seed=3) == expected
    assert (drawn(answers.sample(fraction=1, shuffle=True, seed=4), draw) == fast).all()


def test_fluctuation_missing_answer_leaves_the_denominator() -> None:
    answers = example().filter(~((pl.col("pair_id") == "t0") & (pl.col("template_id") == "P0.3")))
    naive = {naive_draw(answers, "template", np.random.default_rng(i)) for i in range(300)}
    assert np.isin(np.round(sorted(naive), 9), np.round(drawn(answers, "template"), 9)).all()

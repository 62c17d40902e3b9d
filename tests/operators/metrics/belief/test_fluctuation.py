"""Fluctuation, against drawing one prompt after the other."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from factsweep.operators.metrics.belief.answers import (
    Draw,
    acc_at_1_terms,
    fluctuation,
    pair_draws,
    template_draws,
    template_rates,
)
from tests.operators.metrics.scalars import acc_at_1

Tables = st.SearchStrategy[pl.DataFrame]
DRAWS: tuple[Draw, ...] = ("template", "pair")


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


def test_fluctuation_missing_answer_leaves_the_denominator() -> None:
    answers = example().filter(~((pl.col("pair_id") == "t0") & (pl.col("template_id") == "P0.3")))
    naive = {naive_draw(answers, "template", np.random.default_rng(i)) for i in range(300)}
    assert np.isin(np.round(sorted(naive), 9), np.round(drawn(answers, "template"), 9)).all()


@pytest.mark.parametrize("draw", DRAWS)
@given(data=st.data())
def test_fluctuation_complete_answers_average_to_acc_at_1(
    draw: Draw, data: st.DataObject, complete_answer_tables: Tables
) -> None:
    answers = data.draw(complete_answer_tables)
    accuracies = drawn(answers, draw, n_draws=4000)
    standard_error = accuracies.std() / 4000**0.5
    assert accuracies.mean() == pytest.approx(acc_at_1(answers), abs=5 * standard_error + 1e-9)


def test_fluctuation_pair_draw_has_the_poisson_binomial_sd() -> None:
    rates = example().group_by("pair_id").agg(pl.mean("correct"))["correct"].to_numpy()
    expected = np.sqrt((rates * (1 - rates)).sum()) / len(rates)
    sd = fluctuation(example(), draw="pair", n_draws=50_000, seed=1).sd
    assert sd == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("draw", DRAWS)
def test_fluctuation_shuffled_rows_change_nothing(draw: Draw) -> None:
    shuffled = example().sample(fraction=1, shuffle=True, seed=4)
    assert (drawn(shuffled, draw) == drawn(example(), draw)).all()


def test_fluctuation_equal_templates_do_not_fluctuate() -> None:
    answers = example().with_columns(correct=pl.col("pair_id") == "t1")
    assert fluctuation(answers, draw="template", n_draws=50, seed=1) == pytest.approx((0, 0))


def test_fluctuation_no_answers_is_none(no_answers: pl.DataFrame) -> None:
    assert fluctuation(no_answers, draw="template", seed=1) == (None, None)
    assert fluctuation(no_answers, draw="pair", seed=1) == (None, None)

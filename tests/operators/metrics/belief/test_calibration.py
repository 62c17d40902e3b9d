"""Calibration, against direct readings and scikit-learn."""

from math import exp
from statistics import mean

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, roc_auc_score

from factsweep.operators.metrics.belief.calibration import (
    BINS,
    auroc_rounds,
    bins,
    by_confidence,
    confidence,
    ece_rounds,
    ovconf_by_length,
    ranked_rounds,
)
from factsweep.operators.metrics.shared.bootstrap import UNDEFINED, estimate, weight_blocks
from tests.operators.metrics.scalars import Key, Tables, auroc, brier, ece, match, ovconf


def naive_ece(calibration: pl.DataFrame, n_bins: int) -> float:
    rows = calibration.sort("prompt_id").sort("confidence", descending=True, maintain_order=True)
    n = rows.height
    cuts = [rows[-(-i * n // n_bins) : -(-(i + 1) * n // n_bins)] for i in range(n_bins)]
    gaps = [abs(mean(cut["confidence"]) - mean(cut["correct"])) * len(cut) for cut in cuts]
    return float(sum(gaps)) / n


@given(data=st.data())
def test_calibration_any_prompts_equals_formulas_and_scikit_learn(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    calibration = data.draw(calibration_tables.filter(len))
    right, sure = (calibration[name].to_numpy() for name in ("correct", "confidence"))
    n_bins = data.draw(st.integers(1, 12))
    bin_rows = bins(calibration, n_bins)
    gaps = (bin_rows["mean_confidence"] - bin_rows["mean_accuracy"]) * bin_rows["n"]
    assert ovconf(calibration) == pytest.approx(sure.mean() - right.mean())
    assert gaps.sum() / bin_rows["n"].sum() == pytest.approx(
        ovconf(calibration)
    )  # whatever the bins
    n_bins = min(n_bins, len(calibration))
    assert ece(calibration, n_bins) == pytest.approx(naive_ece(calibration, n_bins))
    assert brier(calibration) == pytest.approx(brier_score_loss(right, sure, labels=[0, 1]))
    one_class = len(set(right)) == 1
    assert auroc(calibration) == (None if one_class else pytest.approx(roc_auc_score(right, sure)))


@given(data=st.data())
def test_bins_any_prompts_are_of_equal_size_and_descend(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    calibration = data.draw(calibration_tables.filter(len))
    bin_rows = bins(calibration)
    assert bin_rows.height == min(10, len(calibration))
    assert bin_rows["n"].sum() == len(calibration)
    assert bin_rows["n"].max() - bin_rows["n"].min() <= 1  # type: ignore[operator]
    assert (bin_rows["mean_confidence"].diff().drop_nulls() <= 1e-12).all()
    shuffled = calibration.sample(fraction=1, shuffle=True, seed=data.draw(st.integers(0, 99)))
    assert bins(shuffled).equals(bin_rows)
    for metric in (ovconf, ece, brier, auroc):
        assert metric(shuffled) == metric(calibration)


@given(data=st.data())
def test_calibration_rounds_equal_metrics_of_written_out_resamples(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    calibration = data.draw(calibration_tables.filter(len))
    rounds = ranked_rounds(calibration, seed=1, n_rounds=5, n_bins=10)
    assert estimate(rounds["ece"]).value == pytest.approx(ece(calibration))
    assert estimate(rounds["auroc"]).value == pytest.approx(auroc(calibration))
    ordered = by_confidence(calibration)
    weights = np.concatenate(list(weight_blocks(len(ordered), np.random.default_rng(1), 3)))
    resamples = [ordered[np.repeat(np.arange(len(ordered)), row)] for row in weights]
    assert ece_rounds(ordered, weights, 4) == pytest.approx([ece(rows, 4) for rows in resamples])
    defined = [np.nan if auroc(rows) is None else auroc(rows) for rows in resamples]
    assert auroc_rounds(ordered, weights) == pytest.approx(defined, nan_ok=True)


def test_calibration_no_prompts_is_none(no_calibration: pl.DataFrame) -> None:
    assert [metric(no_calibration) for metric in (ovconf, ece, brier, auroc)] == [None] * 4
    assert bins(no_calibration).schema == BINS
    rounds = ranked_rounds(no_calibration, seed=1, n_rounds=5, n_bins=10)
    assert [estimate(rounds[name]) for name in ("ece", "auroc")] == [UNDEFINED] * 2


KEYS = st.sampled_from([None, "\x1fa\x1f", "\x1fb\x1f", "\x1fa\x1fb\x1f", "\x1fab\x1f"])
PROMPTS = {"prompt_id": pl.Int64, "key": pl.String}


@given(st.lists(st.tuples(KEYS, st.lists(KEYS, max_size=8)), max_size=5))
def test_confidence_any_samples_equals_share_of_matches(
    prompts: list[tuple[Key, list[Key]]],
) -> None:
    greedy = [(i, key) for i, (key, _) in enumerate(prompts)]
    samples = [(i, key) for i, (_, keys) in enumerate(prompts) for key in keys]
    samples.append((99, None))  # of no prompt
    confidences = confidence(
        *(pl.DataFrame(rows, PROMPTS, orient="row") for rows in (greedy, samples))
    )
    expected = [
        (i, pytest.approx(mean(match(g, key) for key in keys)))
        for i, (g, keys) in enumerate(prompts)
        if keys
    ]
    assert confidences.rows() == expected
    assert confidences.schema == {"prompt_id": pl.Int64, "confidence": pl.Float64}


ANSWER = st.tuples(
    st.integers(0, 7), st.one_of(st.none(), st.floats(-9, 0, width=32)), st.booleans()
)


@given(prompts=st.lists(ANSWER, max_size=20))
def test_ovconf_by_length_any_prompts_equals_naive_groups(
    prompts: list[tuple[int, float | None, bool]],
) -> None:
    ids = [f"p{i}" for i in range(len(prompts))]
    n_tokens, logprobs, correct = zip(*prompts, strict=True) if prompts else ((), (), ())
    columns = {"prompt_id": ids, "relation_id": [f"P{i[-1]}" for i in ids], "pair_id": ids}
    kinds = {**dict.fromkeys(columns, pl.String), "correct": pl.Boolean}
    answers = pl.DataFrame({**columns, "correct": correct}, kinds)
    kinds = {"prompt_id": pl.String, "n_tokens": pl.UInt16, "logprob": pl.Float32}
    canary = pl.DataFrame({"prompt_id": ids, "n_tokens": n_tokens, "logprob": logprobs}, kinds)
    rows = ovconf_by_length(answers, canary, seed=1, n_rounds=5)
    assert rows["slice"].to_list() == [f"tokens={n}" for n in range(1, 6)]
    for n, value, size in zip(range(1, 6), rows["value"], rows["n"], strict=True):
        gaps = [exp(p) - right for k, p, right in prompts if k == n and p is not None]
        assert size == len(gaps)
        assert value == pytest.approx(mean(gaps) if gaps else None, abs=1e-6)
    fewer = ovconf_by_length(answers.head(1), canary, longest=1, seed=1, n_rounds=5)
    assert fewer["n"].sum() <= 1  # a prompt without an answer is in no group
    assert fewer["n_failed"].to_list() == [0]

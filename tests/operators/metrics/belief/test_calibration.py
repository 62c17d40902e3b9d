"""Calibration, against direct readings and scikit-learn."""

from statistics import mean

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, roc_auc_score

from factsweep.operators.metrics.belief.calibration import BINS, auroc, bins, ece
from tests.operators.metrics.scalars import brier, ovconf

Tables = st.SearchStrategy[pl.DataFrame]


def naive_ece(calibration: pl.DataFrame, n_bins: int) -> float:
    rows = calibration.sort("prompt_id").sort("confidence", descending=True, maintain_order=True)
    n = rows.height
    cuts = [rows[-(-i * n // n_bins) : -(-(i + 1) * n // n_bins)] for i in range(n_bins)]
    gaps = [abs(mean(cut["confidence"]) - mean(cut["correct"])) * len(cut) for cut in cuts]
    return float(sum(gaps)) / n


@given(data=st.data())
def test_ovconf_any_bins_equals_confidence_minus_accuracy(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    calibration = data.draw(calibration_tables.filter(len))
    n_bins = data.draw(st.integers(1, 12))
    expected = mean(calibration["confidence"]) - mean(calibration["correct"])
    found = bins(calibration, n_bins)
    gaps = (found["mean_confidence"] - found["mean_accuracy"]) * found["n"]
    assert gaps.sum() / found["n"].sum() == pytest.approx(expected)
    assert ovconf(calibration) == pytest.approx(expected)


@given(data=st.data())
def test_ece_any_prompts_equals_naive_bins(data: st.DataObject, calibration_tables: Tables) -> None:
    calibration = data.draw(calibration_tables.filter(len))
    n_bins = data.draw(st.integers(1, len(calibration)))
    assert ece(calibration, n_bins) == pytest.approx(naive_ece(calibration, n_bins))


@given(data=st.data())
def test_bins_any_prompts_are_of_equal_size_and_descend(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    calibration = data.draw(calibration_tables.filter(len))
    found = bins(calibration)
    assert found.height == min(10, len(calibration))
    assert found["n"].sum() == len(calibration)
    assert found["n"].max() - found["n"].min() <= 1  # type: ignore[operator]
    assert (found["mean_confidence"].diff().drop_nulls() <= 1e-12).all()


@given(data=st.data())
def test_auroc_ties_and_all_equals_scikit_learn(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    two_classes = calibration_tables.filter(lambda rows: rows["correct"].n_unique() == 2)
    calibration = data.draw(two_classes)
    right, confidence = (calibration[name].to_numpy() for name in ("correct", "confidence"))
    assert auroc(calibration) == pytest.approx(roc_auc_score(right, confidence))


@pytest.mark.parametrize("correct", [True, False])
def test_auroc_one_class_is_none(correct: bool) -> None:
    columns = {"prompt_id": ["a", "b"], "confidence": [0.2, 0.7], "correct": [correct] * 2}
    assert auroc(pl.DataFrame(columns)) is None


@given(data=st.data())
def test_brier_any_prompts_equals_scikit_learn(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    calibration = data.draw(calibration_tables.filter(len))
    right, confidence = (calibration[name].to_numpy() for name in ("correct", "confidence"))
    assert brier(calibration) == pytest.approx(brier_score_loss(right, confidence, labels=[0, 1]))


@given(data=st.data())
def test_calibration_shuffled_rows_change_nothing(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    calibration = data.draw(calibration_tables.filter(len))
    shuffled = calibration.sample(fraction=1, shuffle=True, seed=data.draw(st.integers(0, 99)))
    assert bins(shuffled).equals(bins(calibration))
    for metric in (ovconf, ece, brier, auroc):
        assert metric(shuffled) == metric(calibration)


def test_ece_perfectly_calibrated_halves_is_zero() -> None:
    confidences = np.repeat([1.0, 0.5], 10)
    correct = [True] * 10 + [True, False] * 5
    columns = {"prompt_id": range(20), "confidence": confidences, "correct": correct}
    assert ece(pl.DataFrame(columns), n_bins=2) == 0.0


def test_calibration_no_prompts_is_none(no_calibration: pl.DataFrame) -> None:
    assert [metric(no_calibration) for metric in (ovconf, ece, brier, auroc)] == [None] * 4
    assert bins(no_calibration).schema == BINS

"""Metrics as numbers over everything, from the terms of their pairs."""

import polars as pl

from factsweep.operators.metrics.belief.answers import (
    By,
    acc_at_1_terms,
    consist_terms,
    coverage_maximum_terms,
    coverage_oracle_terms,
    one_word_ratio_terms,
)
from factsweep.operators.metrics.belief.calibration import brier_terms, ovconf_terms
from factsweep.operators.metrics.shared.rows import ratio


def acc_at_1(answers: pl.DataFrame) -> float | None:
    return ratio(acc_at_1_terms(answers))


def one_word_ratio(answers: pl.DataFrame) -> float | None:
    return ratio(one_word_ratio_terms(answers))


def coverage_oracle(answers: pl.DataFrame) -> float | None:
    return ratio(coverage_oracle_terms(answers))


def coverage_maximum(answers: pl.DataFrame) -> float | None:
    return ratio(coverage_maximum_terms(answers))


def consist(answers: pl.DataFrame, *, by: By = "match") -> float | None:
    return ratio(consist_terms(answers, by=by))


def ovconf(calibration: pl.DataFrame) -> float | None:
    return ratio(ovconf_terms(calibration))


def brier(calibration: pl.DataFrame) -> float | None:
    return ratio(brier_terms(calibration))

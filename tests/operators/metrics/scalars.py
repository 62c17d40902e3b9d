"""Metrics as numbers over everything, from their terms; and what tests of answers share."""

from collections.abc import Callable

import numpy as np
import polars as pl
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.answers import (
    acc_at_1_terms,
    consist_terms,
    coverage_maximum_terms,
    coverage_oracle_terms,
    one_word_ratio_terms,
)
from factsweep.operators.metrics.belief.calibration import (
    auroc_rounds,
    brier_terms,
    by_confidence,
    ece_rounds,
    ovconf_terms,
)

Key = str | None
Tables = st.SearchStrategy[pl.DataFrame]
Metric = Callable[..., float | None]
NONE_FAILED = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})


def _of(terms: Callable[..., pl.DataFrame]) -> Metric:
    return lambda rows, **options: ratio(terms(rows, **options))


def ratio(terms: pl.DataFrame) -> float | None:
    """The sum of the numerators over that of the denominators; None where that is 0."""
    numerator, denominator = terms.select(pl.sum("numerator", "denominator")).row(0)
    return float(numerator / denominator) if denominator else None


acc_at_1 = _of(acc_at_1_terms)
one_word_ratio = _of(one_word_ratio_terms)
coverage_oracle = _of(coverage_oracle_terms)
coverage_maximum = _of(coverage_maximum_terms)
consist = _of(consist_terms)
ovconf = _of(ovconf_terms)
brier = _of(brier_terms)


def ece(calibration: pl.DataFrame, n_bins: int = 10) -> float | None:
    """The ECE of the prompts themselves."""
    if calibration.is_empty():
        return None
    weights = np.ones((1, calibration.height), np.int64)
    return float(ece_rounds(by_confidence(calibration), weights, n_bins)[0])


def auroc(calibration: pl.DataFrame) -> float | None:
    """The AUROC of the prompts themselves; None without right or without wrong answers."""
    weights = np.ones((1, calibration.height), np.int64)
    value = float(auroc_rounds(by_confidence(calibration), weights)[0])
    return None if np.isnan(value) else value


def naive_aurc(calibration: pl.DataFrame) -> float:
    """The mean risk over coverages: each answer of a tie is as wrong as the tie."""
    tied = pl.col("correct").mean().over("confidence")
    rows = calibration.with_columns(risk=1 - tied).sort("confidence", descending=True)
    risks = (rows["risk"].cum_sum() / pl.int_range(1, rows.height + 1, eager=True)).to_list()
    return sum(risks) / len(risks)


def naive_excess(calibration: pl.DataFrame) -> float:
    """AURC minus that of the best order."""
    best = calibration.with_columns(confidence=pl.col("correct").cast(pl.Float64))
    return naive_aurc(calibration) - naive_aurc(best)


def naive_prr(calibration: pl.DataFrame) -> float | None:
    """1 for the best order, 0 for chance; None without right or without wrong answers."""
    if calibration["correct"].n_unique() < 2:
        return None
    chance = 1 - calibration["correct"].mean()  # type: ignore[operator]
    best = naive_aurc(calibration) - naive_excess(calibration)
    return (chance - naive_aurc(calibration)) / (chance - best)


RANKED: dict[str, Metric] = {
    "aurc": lambda rows: naive_aurc(rows) if len(rows) else None,
    "aurc_excess": lambda rows: naive_excess(rows) if len(rows) else None,
    "prr": naive_prr,
}


def match(a: Key, b: Key) -> bool:
    """Whether one key contains the other."""
    return a is not None and b is not None and (a in b or b in a)


def named(answers: pl.DataFrame) -> pl.DataFrame:
    """Answers with the ids of their prompts."""
    return answers.with_columns(
        prompt_id=pl.format("{}.{}.{}", "pair_id", "template_id", "subject_index")
    )


def overall(rows: pl.DataFrame) -> dict[str, float | None]:
    """The values over everything, by metric."""
    return dict(rows.filter(pl.col("slice").is_null()).select("metric", "value").iter_rows())

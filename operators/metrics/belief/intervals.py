"""95 % intervals of the BELIEF metrics that are not ratios of sums over pairs."""

from collections.abc import Callable

import numpy as np
import polars as pl

from factsweep.operators.metrics.belief.calibration import auroc_rounds, by_confidence, ece_rounds
from factsweep.operators.metrics.belief.coverage import template_hits
from factsweep.operators.metrics.shared.bootstrap import (
    CELLS_PER_BLOCK,
    UNDEFINED,
    Bootstrapped,
    Estimate,
    FloatArray,
    IntArray,
    Rounds,
    bootstrapped,
    estimate,
    relations,
    resampled_sums,
    weight_blocks,
)
from factsweep.operators.seeds import generator


def bootstrap_coverage_maximum(
    answers: pl.DataFrame, *, seed: int, n_rounds: int = 1000
) -> Bootstrapped:
    """Estimate `coverage_maximum`; every round keeps the templates that are best in the sample.

    Were the best template chosen again in each round, it would owe part of its lead to the chance
    of that round, and the interval would lie high, even above the value.
    """
    sums = {
        relation: _maximum_rounds(_hits_matrix(hits), seed, relation, n_rounds)
        for relation, hits in relations(template_hits(answers))
    }
    return bootstrapped(sums)


def bootstrap_ece(
    calibration: pl.DataFrame, *, seed: int, n_rounds: int = 1000, n_bins: int = 10
) -> Estimate:
    """Estimate `ece`; each round sorts the prompts that it took and cuts them into bins again.

    The unit that is resampled is the prompt: there is one per pair.
    """
    return _calibration_estimate(
        calibration, lambda rows, weights: ece_rounds(rows, weights, n_bins), seed, n_rounds
    )


def bootstrap_auroc(calibration: pl.DataFrame, *, seed: int, n_rounds: int = 1000) -> Estimate:
    """Estimate `auroc`; rounds without any right or any wrong answer are left out."""
    return _calibration_estimate(calibration, auroc_rounds, seed, n_rounds)


def _hits_matrix(hits: pl.DataFrame) -> FloatArray:
    """One relation's hits as pairs × templates; a missing answer is no hit."""
    pair, template = (_places(hits[name]) for name in ("pair_id", "template_id"))
    matrix = np.zeros((pair.max() + 1, template.max() + 1))
    matrix[pair, template] = hits["hit"].to_numpy()
    return matrix


def _places(ids: pl.Series) -> IntArray:
    """Where each id stands among the distinct ones, in the order of their texts."""
    return ids.cast(pl.Enum(ids.unique().sort())).to_physical().cast(pl.Int64).to_numpy()


def _maximum_rounds(hits: FloatArray, seed: int, relation: str, n_rounds: int) -> Rounds:
    best = hits[:, [hits.sum(axis=0).argmax()]]
    best = resampled_sums(best, seed, relation, n_rounds)[:, 0]
    return Rounds(best, np.full(len(best), float(len(hits))), len(hits) - 1)


def _calibration_estimate(
    calibration: pl.DataFrame,
    metric: Callable[[pl.DataFrame, IntArray], FloatArray],
    seed: int,
    n_rounds: int,
) -> Estimate:
    if calibration.is_empty():
        return UNDEFINED
    parts = list(relations(calibration, "pair_id", "prompt_id"))
    weights = _calibration_weights(parts, seed, n_rounds)
    rows = pl.concat(rows for _, rows in parts).with_row_index("unit")
    ordered = by_confidence(rows)
    weights = weights[:, ordered["unit"].to_numpy()]
    n_blocks = -(-weights.size // CELLS_PER_BLOCK)
    blocks = np.array_split(weights, n_blocks)
    return estimate(np.concatenate([metric(ordered, block) for block in blocks]))


def _calibration_weights(
    parts: list[tuple[str, pl.DataFrame]], seed: int, n_rounds: int
) -> IntArray:
    """Put the relations' weights side by side: rounds × prompts."""
    columns = []
    for relation, rows in parts:
        blocks = weight_blocks(rows.height, generator(seed, "bootstrap", relation), n_rounds)
        columns.append(np.concatenate(list(blocks)))
    return np.hstack(columns)

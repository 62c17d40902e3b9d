"""95 % intervals: resample the pairs, with replacement, within each relation.

Pairs are nested in relations, and the relations are all there are: each keeps its number of pairs
in every round. A round is a vector of weights, how often each unit is taken; round 0 takes every
unit once, so that it gives the value of the sample itself. The weights of a relation are drawn
from (seed, relation) alone: a slice of one relation and a table of all agree.

Source: Efron and Tibshirani 1993, chapter 13 (percentile intervals); the paper has no intervals.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from operators.metrics.calibration import auroc_rounds, by_confidence, ece_rounds
from operators.metrics.coverage import template_hits
from operators.seeds import generator

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_CELLS_PER_BLOCK = 2**21
_TAILS = (0.025, 0.975)


class Estimate(NamedTuple):
    """A value with its 95 % percentile interval, in the metric's own unit."""

    value: float | None
    ci_low: float | None
    ci_high: float | None


UNDEFINED = Estimate(None, None, None)


class Bootstrapped(NamedTuple):
    """A metric over all pairs and for each relation that has any."""

    overall: Estimate
    by_relation: dict[str, Estimate]


class Rounds(NamedTuple):
    """The two sums of a ratio in each round, the first being the sample itself."""

    numerator: FloatArray
    denominator: FloatArray


def bootstrap_ratio(terms: pl.DataFrame, *, seed: int, n_rounds: int = 1000) -> Bootstrapped:
    """Estimate a ratio of two sums from the terms of its pairs (columns: `terms.TERMS`).

    >>> terms = pl.DataFrame({
    ...     "relation_id": ["P1", "P1"], "pair_id": ["t1", "t2"],
    ...     "numerator": [1.0, 0.0], "denominator": [1.0, 1.0],
    ... })
    >>> bootstrap_ratio(terms, seed=1, n_rounds=100).overall
    Estimate(value=0.5, ci_low=0.0, ci_high=1.0)
    """
    sums = {
        relation: Rounds(*_resampled_sums(_terms_matrix(rows), seed, relation, n_rounds).T)
        for relation, rows in _relations(terms, "pair_id")
    }
    return _bootstrapped(sums)


def bootstrap_coverage_maximum(
    answers: pl.DataFrame, *, seed: int, n_rounds: int = 1000
) -> Bootstrapped:
    """Estimate `coverage_maximum`; every round keeps the templates that are best in the sample.

    Were the best template chosen anew in each round, it would owe part of its lead to the chance of
    that round, and the interval would lie high, even above the value.
    """
    sums = {
        relation: _maximum_rounds(_hits_matrix(hits), seed, relation, n_rounds)
        for relation, hits in _relations(template_hits(answers), "pair_id")
    }
    return _bootstrapped(sums)


def bootstrap_ece(
    calibration: pl.DataFrame, *, seed: int, n_rounds: int = 1000, n_bins: int = 10
) -> Estimate:
    """Estimate `ece`; each round sorts the prompts that it took and cuts them into bins anew.

    The unit that is resampled is the prompt: there is one a pair.
    """
    return _calibration_estimate(
        calibration, lambda rows, weights: ece_rounds(rows, weights, n_bins), seed, n_rounds
    )


def bootstrap_auroc(calibration: pl.DataFrame, *, seed: int, n_rounds: int = 1000) -> Estimate:
    """Estimate `auroc`; rounds without any right or any wrong answer are left out."""
    return _calibration_estimate(calibration, auroc_rounds, seed, n_rounds)


def estimate(rounds: FloatArray) -> Estimate:
    """Read the value from round 0 and the interval from the others; NaN is undefined."""
    if not rounds.size or np.isnan(rounds[0]):
        return UNDEFINED
    resampled = rounds[1:][~np.isnan(rounds[1:])]
    if not resampled.size:
        return Estimate(float(rounds[0]), None, None)
    low, high = np.quantile(resampled, _TAILS)
    return Estimate(float(rounds[0]), float(low), float(high))


def weight_blocks(
    n_units: int, rng: np.random.Generator, n_rounds: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the rounds' weights (rounds × units), the sample itself first, then block by block."""
    yield np.ones((1, n_units), np.int64)
    rounds_per_block = max(1, _CELLS_PER_BLOCK // n_units)
    for start in range(0, n_rounds, rounds_per_block):
        yield _weights(n_units, rng, min(rounds_per_block, n_rounds - start))


def _weights(n_units: int, rng: np.random.Generator, n_rounds: int) -> NDArray[np.int64]:
    taken = rng.integers(n_units, size=(n_rounds, n_units))
    flat = taken + n_units * np.arange(n_rounds)[:, None]
    counts = np.bincount(flat.ravel(), minlength=n_rounds * n_units)
    return counts.reshape(n_rounds, n_units)


def _resampled_sums(statistics: FloatArray, seed: int, relation: str, n_rounds: int) -> FloatArray:
    """Sum the statistics (pairs × statistics) over each round's pairs: rounds × statistics."""
    blocks = weight_blocks(len(statistics), generator(seed, "bootstrap", relation), n_rounds)
    return np.concatenate([weights @ statistics for weights in blocks])


def _terms_matrix(terms: pl.DataFrame) -> FloatArray:
    return terms.select("numerator", "denominator").to_numpy()


def _hits_matrix(hits: pl.DataFrame) -> FloatArray:
    """One relation's hits as pairs × templates; a missing answer is no hit."""
    pair, template = (
        hits.select(pl.col(name).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
        for name in ("pair_id", "template_id")
    )
    matrix = np.zeros((pair.max() + 1, template.max() + 1))
    matrix[pair, template] = hits["hit"].to_numpy()
    return matrix


def _maximum_rounds(hits: FloatArray, seed: int, relation: str, n_rounds: int) -> Rounds:
    best = hits[:, [hits.sum(axis=0).argmax()]]
    best = _resampled_sums(best, seed, relation, n_rounds)[:, 0]
    return Rounds(best, np.full(len(best), float(len(hits))))


def _relations(rows: pl.DataFrame, *order: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each relation's rows, relations and rows sorted by the text of their ids."""
    columns = ("relation_id", *order)
    by_text = rows.with_columns(pl.col(columns).cast(pl.String)).sort(columns)
    for relation in by_text.partition_by("relation_id", maintain_order=True):
        yield relation["relation_id"][0], relation


def _bootstrapped(sums: dict[str, Rounds]) -> Bootstrapped:
    by_relation = {relation: estimate(_ratios([rounds])) for relation, rounds in sums.items()}
    return Bootstrapped(estimate(_ratios(sums.values())), by_relation)


def _ratios(sums: Iterable[Rounds]) -> FloatArray:
    """Pool the sums of several relations and divide; NaN where the denominator is 0."""
    pooled = list(sums)
    numerator = np.sum([rounds.numerator for rounds in pooled], axis=0)
    denominator = np.sum([rounds.denominator for rounds in pooled], axis=0)
    ratios = np.full(np.shape(numerator), np.nan)
    np.divide(numerator, denominator, out=ratios, where=denominator > 0)
    return np.atleast_1d(ratios)


def _calibration_estimate(
    calibration: pl.DataFrame,
    metric: Callable[[pl.DataFrame, IntArray], FloatArray],
    seed: int,
    n_rounds: int,
) -> Estimate:
    if calibration.is_empty():
        return UNDEFINED
    relations = list(_relations(calibration, "pair_id", "prompt_id"))
    weights = _calibration_weights(relations, seed, n_rounds)
    rows = pl.concat(rows for _, rows in relations).with_row_index("unit")
    ordered = by_confidence(rows)
    weights = weights[:, ordered["unit"].to_numpy()]
    n_blocks = -(-weights.size // _CELLS_PER_BLOCK)
    blocks = np.array_split(weights, n_blocks)
    return estimate(np.concatenate([metric(ordered, block) for block in blocks]))


def _calibration_weights(
    relations: list[tuple[str, pl.DataFrame]], seed: int, n_rounds: int
) -> IntArray:
    """Put the relations' weights side by side: rounds × prompts."""
    columns = []
    for relation, rows in relations:
        blocks = weight_blocks(rows.height, generator(seed, "bootstrap", relation), n_rounds)
        columns.append(np.concatenate(list(blocks)))
    return np.hstack(columns)

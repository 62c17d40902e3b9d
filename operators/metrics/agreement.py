"""How far graders agree about the same answers: confusion, Cohen's kappa, Krippendorff's alpha.

The answer is the unit, the fact that of every interval: a round draws facts with all their answers.
Sources: Cohen 1960, equation 1; Krippendorff 2004, section 11.3 (nominal data with missing ones).
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import polars as pl

from factsweep.operators.matching.verdicts import STATES
from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.metrics.shared.rows import Metric, Row, table
from factsweep.operators.schemas import SETTING, columns

KAPPA = Metric(
    "kappa",
    "κ",
    "agreement of two graders about answers beyond chance (Cohen); 1: all",
    "higher",
    (-1, 1),
)
ALPHA = Metric(
    "alpha",
    "α",
    "agreement of all graders beyond chance (Krippendorff, nominal); 1: all",
    "higher",
    (-1, 1),
)
METRICS = (KAPPA, ALPHA)
CONFUSION = columns("confusion", *SETTING)


def kappa(counts: bootstrap.FloatArray) -> bootstrap.FloatArray:
    """Cohen's κ of tables of counts (… × states × states); NaN where chance alone agrees fully.

    >>> round(float(kappa(np.array([[20.0, 5.0], [10.0, 15.0]]))), 3)
    0.4
    """
    n = counts.sum((-2, -1))
    observed = np.trace(counts, axis1=-2, axis2=-1) * n
    by_chance = (counts.sum(-1) * counts.sum(-2)).sum(-1)
    return _divide(observed - by_chance, n * n - by_chance)


def alpha(coincidences: bootstrap.FloatArray) -> bootstrap.FloatArray:
    """Krippendorff's α from coincidences (… × states × states); NaN where all values are alike.

    >>> pairs = np.array([[4.0, 1.0], [1.0, 2.0]])  # of four answers by two graders
    >>> round(float(alpha(pairs)), 3)
    0.533
    """
    totals = coincidences.sum(-1)
    n = totals.sum(-1)
    observed = n - np.trace(coincidences, axis1=-2, axis2=-1)
    expected = n * n - (totals * totals).sum(-1)
    return np.subtract(1.0, _divide(observed * (n - 1), expected))


def _divide(
    numerator: bootstrap.FloatArray, denominator: bootstrap.FloatArray
) -> bootstrap.FloatArray:
    quotient = np.full(np.shape(denominator), np.nan)
    np.divide(numerator, denominator, out=quotient, where=np.abs(denominator) > 1e-9)
    return quotient


def confusion(verdicts: pl.DataFrame, graders: Sequence[str]) -> pl.DataFrame:
    """How many answers each two graders find in which states: the table `confusion`.

    `verdicts` has a row per answer and a column per grader: its state, or null.
    """
    counts = [
        verdicts.group_by(state=pl.col(first), other_state=pl.col(second))
        .agg(n=pl.len().cast(pl.Int64))
        .sort("state", "other_state", nulls_last=True)
        .with_columns(grader=pl.lit(first), other_grader=pl.lit(second))
        for first, second in combinations(graders, 2)
    ]
    return pl.concat([CONFUSION.to_frame(), *(rows.select(CONFUSION.names()) for rows in counts)])


def agreement(
    verdicts: pl.DataFrame, graders: Sequence[str], derived: str, *, seed: int, n_rounds: int
) -> pl.DataFrame:
    """The rows of `kappa`, of each two graders, and of `alpha` over all but the one `derived`.

    `verdicts` has relation_id, pair_id and a column per grader: one of three states, or null. The
    variants of kappa are `grader=A,other=B`. Answers without a verdict of both, or of two of all,
    are left out, and counted as failed.
    """
    rows = list[Row]()
    if verdicts.is_empty():
        return table(rows)
    independent = [name for name in graders if name != derived]
    for metric, compared, count_states, value in (
        *((KAPPA, pair, _count_pairs, kappa) for pair in combinations(graders, 2)),
        (ALPHA, independent, _count_coincidences, alpha),
    ):
        sums, degrees = np.zeros((n_rounds + 1, len(STATES) ** 2)), 0
        for relation_id, answers in bootstrap.relations(verdicts, "pair_id"):
            starts = np.flatnonzero(answers["pair_id"].rle_id().diff().fill_null(1))
            matrix = np.add.reduceat(count_states(_indicators(answers.select(compared))), starts)
            sums += bootstrap.resampled_sums(matrix, seed, relation_id, n_rounds)
            degrees += len(starts) - 1
        n_verdicts = pl.sum_horizontal(pl.col(compared).is_not_null())
        n = int(verdicts.select((n_verdicts > 1).sum()).item())
        estimated = bootstrap.estimate(value(sums.reshape(-1, len(STATES), len(STATES))), degrees)
        variant = None if metric == ALPHA else f"grader={compared[0]},other={compared[1]}"
        rows.append(Row(variant, None, metric.name, *estimated, n, verdicts.height - n))
    return table(rows)


def _indicators(verdicts: pl.DataFrame) -> bootstrap.FloatArray:
    """Whether each grader finds each answer in each state: graders × answers × states."""
    states = [[(column == state).fill_null(value=False) for state in STATES] for column in verdicts]
    return np.array(states, dtype=np.float64).swapaxes(1, 2)


def _count_pairs(indicators: bootstrap.FloatArray) -> bootstrap.FloatArray:
    """The states of each answer by two graders: answers × states²."""
    first, second = indicators
    pairs: bootstrap.FloatArray = np.einsum("ai,aj->aij", first, second).reshape(len(first), -1)
    return pairs


def _count_coincidences(indicators: bootstrap.FloatArray) -> bootstrap.FloatArray:
    """The pairs of states that graders give each answer, in both orders: answers × states²."""
    counts: bootstrap.FloatArray = indicators.sum(0)
    n_verdicts = counts.sum(1, keepdims=True)
    weighted = np.divide(counts, n_verdicts - 1, out=np.zeros_like(counts), where=n_verdicts > 1)
    pairs: bootstrap.FloatArray = np.einsum("ai,aj->aij", weighted, counts)
    pairs -= np.einsum("ai,ij->aij", weighted, np.eye(len(STATES)))  # a verdict with itself
    return np.reshape(pairs, (len(counts), -1))

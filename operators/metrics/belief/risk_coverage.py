"""How well a confidence orders right answers before wrong ones: AURC, its excess, and PRR.

The risk at a coverage k/n is the share of wrong answers among the k most confident of n. AURC is
the mean risk over the coverages 1/n, 2/n … 1. Of equally confident answers the order is unknown:
the risk is its mean over all their orders, so that neither rows nor ids decide it.

Sources: Geifman, Uziel and El-Yaniv 2019 (AURC, and its excess over the best order); Malinin and
Gales 2021, section 4 (PRR), as lm-polygraph computes it, with the expected value of a random order.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.metrics.shared.bootstrap import FloatArray, IntArray
from factsweep.operators.metrics.shared.rows import Metric


class RiskRounds(NamedTuple):
    """The three numbers in each round; `prr` is NaN without right, or without wrong answers."""

    aurc: FloatArray
    aurc_excess: FloatArray
    prr: FloatArray


def risk_rounds(ordered: pl.DataFrame, weights: IntArray) -> RiskRounds:
    """Compute AURC, its excess and PRR of each row of `weights`: how often each prompt is taken.

    `ordered` has confidence, descending, and correct. PRR is (AURC of a random order − AURC) /
    (AURC of a random order − AURC of the best): 1 is the best order, 0 is chance.

    >>> prompts = pl.DataFrame({"confidence": [0.9, 0.5, 0.5], "correct": [True, True, False]})
    >>> rounds = risk_rounds(prompts, np.ones((1, 3), np.int64))
    >>> [round(float(values[0]), 4) for values in rounds]
    [0.1944, 0.0833, 0.625]
    """
    is_right = ordered["correct"].to_numpy()
    starts = np.flatnonzero(np.diff(ordered["confidence"].to_numpy(), prepend=np.inf))
    n_tied, n_wrong = group_sums(weights, starts), group_sums(weights * ~is_right, starts)
    last = n_tied.cumsum(axis=1)
    first, wrong_before = last - n_tied, n_wrong.cumsum(axis=1) - n_wrong
    n, wrong = (sums.sum(axis=1) for sums in (n_tied, n_wrong))
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, weights.shape[1] + 1))])
    # In a tie, the expected number of wrong answers grows by the same share with each answer.
    share = n_wrong / np.maximum(n_tied, 1)
    risks = n_wrong + (wrong_before - first * share) * (harmonic[last] - harmonic[first])
    aurc = risks.sum(axis=1) / n
    random = wrong / n
    best = (wrong - (n - wrong) * (harmonic[n] - harmonic[n - wrong])) / n
    prr = np.full(len(n), np.nan)
    np.divide(random - aurc, random - best, out=prr, where=(wrong > 0) & (wrong < n))
    return RiskRounds(aurc, np.maximum(aurc - best, 0), prr)


def group_sums(values: IntArray, starts: IntArray) -> IntArray:
    """Sum the columns between consecutive `starts`."""
    return np.add.reduceat(values, starts, axis=1) if starts.size else values


def risk_coverage(bins: pl.DataFrame) -> pl.DataFrame:
    """Add to the bins of a `series` the share of answers up to each (coverage), and its risk.

    `bins` has series, bin (1 is the most confident), n and mean_accuracy.

    >>> rows = {"series": ["a", "a"], "bin": [2, 1], "n": [1, 1], "mean_accuracy": [0.0, 1.0]}
    >>> risk_coverage(pl.DataFrame(rows)).select("coverage", "risk").rows()
    [(0.5, 0.0), (1.0, 0.5)]
    """
    n, n_right = pl.col("n"), pl.col("n") * pl.col("mean_accuracy")
    n_until = n.cum_sum().over("series")
    return bins.sort("series", "bin", maintain_order=True).with_columns(
        coverage=n_until / n.sum().over("series"),
        risk=1 - n_right.cum_sum().over("series") / n_until,
    )


AURC = Metric(
    "aurc", "AURC", "mean share of wrong answers among the most confident, over coverages", "lower"
)
AURC_EXCESS = Metric("aurc_excess", "AURC excess", "AURC minus that of the best order", "lower")
PRR = Metric(
    "prr",
    "PRR",
    "how far the confidence orders answers, from a random order (0) to the best one (1)",
    "higher",
    (-np.inf, 1),
)

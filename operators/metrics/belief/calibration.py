"""Calibration: whether a model's confidence matches how often it is right.

All functions take a table with one row per sampled prompt: relation_id, pair_id, prompt_id,
confidence (0 to 1) and correct.
"""

from collections.abc import Callable
from typing import Unpack

import numpy as np
import polars as pl

from factsweep.operators.matching.lemmas import matches
from factsweep.operators.metrics.belief.risk_coverage import RiskRounds, group_sums, risk_rounds
from factsweep.operators.metrics.shared.bootstrap import (
    Draws,
    FloatArray,
    IntArray,
    bootstrap_ratio,
    relation_weights,
)
from factsweep.operators.metrics.shared.rows import Metric, Row, pair_terms, table
from factsweep.operators.schemas import SETTING, columns

BINS = columns("bins", *SETTING)
_CELLS_PER_BLOCK = 2**18  # 2 MiB, which a core has at hand
_GAP = pl.col("confidence") - pl.col("correct").cast(pl.Float64)


def bins(calibration: pl.DataFrame, n_bins: int = 10) -> pl.DataFrame:
    """Sort the prompts by confidence, descending, and cut them into bins of equal size (BINS).

    Bin 1 is the most confident one. Sizes differ by at most 1; with fewer prompts than bins, each
    prompt is a bin. Equal confidences are ordered by prompt_id.

    Source: BELIEF, section 2.4. The paper is silent about ties and about remainders.

    >>> prompts = {"prompt_id": ["a", "b", "c", "d"], "confidence": [0.25, 1.0, 0.75, 0.0]}
    >>> correct = {"correct": [False, True, False, False]}
    >>> bins(pl.DataFrame(prompts | correct), n_bins=2).rows()
    [(1, 2, 0.875, 0.5), (2, 2, 0.125, 0.0)]
    """
    index = pl.Series("bin", _bin_index(calibration.height, n_bins) + 1, dtype=pl.Int64)
    rows = by_confidence(calibration).with_columns(index)
    means = rows.group_by("bin").agg(
        n=pl.len(), mean_confidence=pl.mean("confidence"), mean_accuracy=pl.mean("correct")
    )
    return means.select(BINS.names()).cast(BINS).sort("bin")


def ovconf_terms(calibration: pl.DataFrame) -> pl.DataFrame:
    """Give each pair the sum of confidence minus correctness, over its number of prompts.

    The ratio is mean confidence minus mean accuracy (−1 to 1): above 0 is overconfident.

    Source: BELIEF, section 2.4, equation 2, an average over bins, which is the same whatever the
    bins. The paper prints the weights |P(i)|/M, which are no weights; here they are |P(i)|/|P|.
    """
    return pair_terms(calibration, _GAP.sum(), pl.len())


def brier_terms(calibration: pl.DataFrame) -> pl.DataFrame:
    """Give each pair the sum of squared differences of confidence and correctness, over prompts.

    Source: Brier 1950; not in the paper.
    """
    return pair_terms(calibration, (_GAP**2).sum(), pl.len())


def by_confidence(calibration: pl.DataFrame) -> pl.DataFrame:
    """Sort the prompts by confidence, descending; equal ones by the text of their prompt_id."""
    return calibration.sort(
        pl.col("confidence"), pl.col("prompt_id").cast(pl.String), descending=[True, False]
    )


def ece_rounds(ordered: pl.DataFrame, weights: IntArray, n_bins: int) -> FloatArray:
    """Compute the ECE of each row of `weights`: how often each prompt of `ordered` is taken.

    ECE averages |mean confidence − mean accuracy| (0 to 1) over the bins, weighted by size. A
    prompt that was taken several times may stand in two bins of equal size. Every row of `weights`
    must sum to the number of prompts.

    Source: Desai and Durrett 2020, the measure that BELIEF's section 2.4 starts from; over bins
    of equal size, as there, and not of equal width.
    """
    n_rounds, n = weights.shape
    gaps = ordered.select(_GAP).to_series().to_numpy()
    taken_gaps = np.repeat(np.tile(gaps, n_rounds), weights.ravel()).reshape(n_rounds, n)
    starts = np.flatnonzero(np.diff(_bin_index(n, n_bins), prepend=-1))
    mean_gaps: FloatArray = np.abs(np.add.reduceat(taken_gaps, starts, axis=1)).sum(axis=1) / n
    return mean_gaps


def auroc_rounds(ordered: pl.DataFrame, weights: IntArray) -> FloatArray:
    """Compute the AUROC of each row of `weights`; NaN where a row lacks right or wrong answers.

    It is the chance (0 to 1) that a right answer is more confident than a wrong one; equal
    confidences count half.

    Source: Hanley and McNeil 1982 (the Mann-Whitney statistic); not in the paper.

    >>> ordered = pl.DataFrame({"confidence": [0.9, 0.5, 0.5], "correct": [True, True, False]})
    >>> auroc_rounds(ordered, np.ones((1, 3), np.int64)).tolist()
    [0.75]
    """
    right = ordered["correct"].to_numpy()
    starts = np.flatnonzero(np.diff(ordered["confidence"].to_numpy(), prepend=np.inf))
    n_right = group_sums(weights * right, starts)
    n_wrong = group_sums(weights * ~right, starts)
    n_wrong_below = n_wrong.sum(axis=1, keepdims=True) - n_wrong.cumsum(axis=1)
    wins = (n_right * (n_wrong_below + n_wrong / 2)).sum(axis=1)
    comparisons = n_right.sum(axis=1) * n_wrong.sum(axis=1)
    values = np.full(len(wins), np.nan)
    np.divide(wins, comparisons, out=values, where=comparisons > 0)
    return values


RANKINGS = ("auroc", *RiskRounds._fields)


def ranked_rounds(
    calibration: pl.DataFrame, seed: int, n_rounds: int = 1000, n_bins: int | None = None
) -> dict[str, FloatArray]:
    """RANKINGS, and `ece` with `n_bins`, in each round; all take the same prompts.

    For ECE a round sorts the prompts that it took and cuts them into bins again; AUROC and PRR are
    NaN in rounds without any right or any wrong answer.
    """
    names = RANKINGS if n_bins is None else ("ece", *RANKINGS)
    if calibration.is_empty():
        return dict.fromkeys(names, np.full(1, np.nan))
    ids = ("relation_id", "pair_id", "prompt_id")
    rows = calibration.with_columns(pl.col(ids).cast(pl.String)).sort(ids).with_row_index("unit")
    weights = np.hstack(list(relation_weights(rows, seed, n_rounds).values()))
    ordered = by_confidence(rows)
    units = ordered["unit"].to_numpy()
    blocks = np.array_split(weights, -(-weights.size // _CELLS_PER_BLOCK))
    values = []
    for round_weights in (block[:, units] for block in blocks if block.size):
        of_bins = [] if n_bins is None else [ece_rounds(ordered, round_weights, n_bins)]
        rankings = auroc_rounds(ordered, round_weights), *risk_rounds(ordered, round_weights)
        values.append([*of_bins, *rankings])
    return dict(zip(names, map(np.concatenate, zip(*values, strict=True)), strict=True))


def _bin_index(n: int, n_bins: int) -> IntArray:
    """The bin, from 0, of each position of n sorted prompts."""
    return np.arange(n) * min(n_bins, n) // max(n, 1)


OVCONF = Metric(
    "ovconf", "Ovconf", "confidence minus accuracy; above 0 is overconfident", "zero", (-1, 1)
)
ECE = Metric("ece", "ECE", "mean distance between confidence and accuracy, over bins", "lower")
BRIER = Metric(
    "brier", "Brier", "mean squared distance between confidence and being right", "lower"
)
AUROC = Metric(
    "auroc",
    "AUROC",
    "chance that a right answer has a higher confidence than a wrong one",
    "higher",
)


# Whether two columns of keys match, row by row.
Match = Callable[[pl.Expr, pl.Expr], pl.Expr]


def confidence(greedy: pl.DataFrame, samples: pl.DataFrame, match: Match = matches) -> pl.DataFrame:
    r"""Give each sampled prompt the share (0 to 1) of its samples that match its greedy answer.

    `greedy` has one row per prompt, `samples` one per sampled answer: prompt_id, key (null: empty).

    Source: BELIEF-ICL, section 3.2, item 3.

    >>> greedy = pl.DataFrame({"prompt_id": ["p1", "p2"], "key": ["\x1fguitar\x1f", None]})
    >>> keys = ["\x1fguitar\x1f", "\x1fa\x1fguitar\x1f", "\x1fpiano\x1f", None, None]
    >>> samples = pl.DataFrame({"prompt_id": ["p1"] * 4 + ["p2"], "key": keys})
    >>> confidence(greedy, samples).rows()
    [('p1', 0.5), ('p2', 0.0)]
    """
    counts = samples.group_by("prompt_id", "key").agg(n=pl.len())
    answered = counts.join(greedy.select("prompt_id", greedy="key"), on="prompt_id")
    agreeing = pl.col("n").filter(match(pl.col("key"), pl.col("greedy"))).sum()
    share = (agreeing / pl.sum("n")).alias("confidence")
    return answered.group_by("prompt_id").agg(share).sort("prompt_id")


def ovconf_by_length(
    answers: pl.DataFrame, canary: pl.DataFrame, *, longest: int = 5, **draws: Unpack[Draws]
) -> pl.DataFrame:
    """Give a row `ovconf` of the table ROWS for answers of 1, 2, … `longest` tokens.

    The slice is `tokens=1` and so on. The confidence in an answer is the probability of its whole
    token sequence, exp(logprob). `canary` has prompt_id, n_tokens and logprob (natural logarithm,
    summed). A prompt that lacks either is in no group, so n_failed is 0.

    Source: BELIEF, section 6.2, item 1, and footnote 15.

    >>> answers = pl.DataFrame({
    ...     "prompt_id": ["p", "q"], "relation_id": ["P1", "P1"], "pair_id": ["t", "u"],
    ...     "correct": [True, False],
    ... })
    >>> canary = pl.DataFrame({
    ...     "prompt_id": ["p", "q"], "n_tokens": [1, 2], "logprob": [0.0, -0.6931471805599453]
    ... })
    >>> rows = ovconf_by_length(answers, canary, longest=2, seed=1, n_rounds=10)
    >>> rows.select("slice", "metric", "value", "n").rows()
    [('tokens=1', 'ovconf', 0.0, 1), ('tokens=2', 'ovconf', 0.5, 1)]
    """
    sequences = canary.select(
        "prompt_id", "n_tokens", confidence=pl.col("logprob").cast(pl.Float64).exp()
    )
    answered = answers.join(sequences.drop_nulls("confidence"), on="prompt_id")
    rows = []
    for n_tokens in range(1, longest + 1):
        group = answered.filter(pl.col("n_tokens") == n_tokens)
        interval = bootstrap_ratio(ovconf_terms(group), **draws).overall
        rows.append(Row(None, f"tokens={n_tokens}", "ovconf", *interval, group.height, 0))
    return table(rows)

"""Ovconf by answer length: whether a decoder trusts its long answers more than its short ones."""

import polars as pl

from factsweep.operators.metrics.belief.calibration import ovconf_terms
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.metrics.shared.rows import Row, table


def ovconf_by_length(
    answers: pl.DataFrame,
    canary: pl.DataFrame,
    *,
    longest: int = 5,
    seed: int,
    n_rounds: int = 1000,
) -> pl.DataFrame:
    """Give a row `ovconf` of the table ROWS for answers of 1, 2, … `longest` tokens.

    The slice is `tokens=1` and so on. The confidence in an answer is the probability of its whole
    token sequence, exp(logprob). `canary` has prompt_id, n_tokens and logprob (natural logarithm,
    summed); `answers` prompt_id, relation_id, pair_id and correct. A prompt that lacks either is
    in no group, so n_failed is 0; a group without prompts has a null.

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
    rows = answers.join(sequences.drop_nulls("confidence"), on="prompt_id")
    found = []
    for n_tokens in range(1, longest + 1):
        group = rows.filter(pl.col("n_tokens") == n_tokens)
        estimate = bootstrap_ratio(ovconf_terms(group), seed=seed, n_rounds=n_rounds).overall
        found.append(Row(None, f"tokens={n_tokens}", "ovconf", *estimate, group.height, 0))
    return table(found)

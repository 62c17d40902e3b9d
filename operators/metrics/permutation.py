"""Permutation difference: how far a text's log-probability depends on what was scored before it."""

import polars as pl

from operators.metrics.belief import BELIEF


def permutation_difference(first: pl.DataFrame, again: pl.DataFrame) -> pl.DataFrame:
    """Give one row of the table BELIEF: the largest absolute difference, in nats.

    Needs the columns prompt_id and logprob in both; `n` is the number of texts in both, `n_failed`
    that of texts in one alone. Null without a text in both that has two log-probabilities.

    >>> first = pl.DataFrame({"prompt_id": ["a", "b"], "logprob": [-1.0, -2.0]})
    >>> again = pl.DataFrame({"prompt_id": ["b", "a", "c"], "logprob": [-2.25, -1.0, -3.0]})
    >>> permutation_difference(first, again).select("value", "n", "n_failed").row(0)
    (0.25, 2, 1)
    """
    both = first.select("prompt_id", "logprob").join(again, on="prompt_id", suffix="_again")
    value = (both["logprob"] - both["logprob_again"]).abs().max()
    n_failed = first.height + again.height - 2 * both.height
    row = (None, None, "permutation_difference", value, None, None, both.height, n_failed)
    return pl.DataFrame([row], schema=BELIEF, orient="row")

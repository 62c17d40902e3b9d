"""Flip rate: how often the same prompt, decoded greedily twice, gets another answer.

Greedy decoding is a function of the prompt on paper. In bfloat16 it also depends on what else is in
the batch, so that no difference between two runs below this rate says anything about the models.
"""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import ROWS


def flip_rate(first: pl.DataFrame, again: pl.DataFrame) -> pl.DataFrame:
    """Give one row of the table BELIEF: the share of prompts whose text differs.

    Needs the columns prompt_id and text in both; `n` is the number of prompts in both, `n_failed`
    that of prompts in one alone. Null without a prompt in both.

    >>> first = pl.DataFrame({"prompt_id": ["a", "b", "c"], "text": ["Rome", "Oslo", "Kiev"]})
    >>> again = pl.DataFrame({"prompt_id": ["b", "a"], "text": ["Oslo.", "Rome"]})
    >>> flip_rate(first, again).select("value", "n", "n_failed").row(0)
    (0.5, 2, 1)
    """
    both = first.select("prompt_id", "text").join(again, on="prompt_id", suffix="_again")
    value = (both["text"] != both["text_again"]).mean()
    n_failed = first.height + again.height - 2 * both.height
    row = (None, None, "flip_rate", value, None, None, both.height, n_failed)
    return pl.DataFrame([row], schema=ROWS, orient="row")


FLIP_RATE = Metric(
    "flip_rate",
    heading="flip rate",
    says="share of answers that changed when decoded again",
    better="lower",
)

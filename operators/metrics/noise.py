"""How far answers and scores change when they are computed again, and how many answers were cut."""

from typing import Any

import polars as pl

from factsweep.operators.metrics.shared.rows import Metric, Row, count_answers, plain_rows, table


def cut_share(answers: pl.DataFrame) -> pl.DataFrame:
    """Give the share of answers that ended at `max_tokens`: over all, and over each relation.

    Needs relation_id and finish_reason ("length" where the answer was cut); answers without a
    reason, as of another system, do not count, and give no row if none has one.

    >>> ends = {"relation_id": ["P1", "P1", "P2"], "finish_reason": ["length", "stop", None]}
    >>> cut_share(pl.DataFrame(ends)).select("slice", "value", "n").rows()
    [(None, 0.5, 2), ('relation=P1', 0.5, 2)]
    """
    with_reason = answers.drop_nulls("finish_reason")
    if with_reason.is_empty():
        return table([])
    is_cut = (pl.col("finish_reason") == "length").cast(pl.Float64)
    sums = with_reason.select("relation_id", numerator=is_cut, denominator=pl.lit(1.0))
    return table(plain_rows(CUT_SHARE.name, sums, count_answers(with_reason)))


CUT_SHARE = Metric(
    "cut_share", "cut", "share of answers that ended at max_tokens, and not by themselves", "lower"
)


def flip_rate(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Give one row of the table BELIEF: the share of prompts whose text differs.

    In bfloat16 greedy decoding also depends on what else is in the batch: no difference between two
    runs below this rate says anything about the models. `n` is the number of prompts in both,
    `n_failed` that of prompts in one alone. Null without a common prompt.

    >>> first = pl.DataFrame({"prompt_id": ["a", "b", "c"], "text": ["Rome", "Oslo", "Kiev"]})
    >>> again = pl.DataFrame({"prompt_id": ["b", "a"], "text": ["Oslo.", "Rome"]})
    >>> flip_rate(first, again).select("value", "n", "n_failed").row(0)
    (0.5, 2, 1)
    """
    prompts = first.select("prompt_id", "text").join(second, on="prompt_id", suffix="_again")
    value: Any = (prompts["text"] != prompts["text_again"]).mean()
    n_failed = first.height + second.height - 2 * prompts.height
    return table([Row(None, None, FLIP_RATE.name, value, None, None, prompts.height, n_failed)])


FLIP_RATE = Metric(
    "flip_rate", "flip rate", "share of answers that changed when decoded again", "lower"
)


def permutation_difference(scores: pl.DataFrame, scored_again: pl.DataFrame) -> pl.DataFrame:
    """The largest absolute difference of the log-probabilities, in nats (one row of table BELIEF).

    Both have prompt_id and logprob; `scored_again` has the prompts that were scored twice. n counts
    the prompts with a number in both, n_failed the rest of `scored_again`. Null where n is 0.

    >>> scores = pl.DataFrame({"prompt_id": ["a", "b", "c"], "logprob": [-8.0, -9.0, -2.0]})
    >>> again = pl.DataFrame({"prompt_id": ["b", "a"], "logprob": [-9.25, -8.0]})
    >>> permutation_difference(scores, again).select("metric", "value", "n", "n_failed").row(0)
    ('permutation_difference', 0.25, 2, 0)
    """
    scored_twice = scored_again.join(scores, on="prompt_id", how="left", suffix="_first")
    second, first = (pl.col(name).cast(pl.Float64) for name in ("logprob", "logprob_first"))
    differences = scored_twice.select((first - second).abs()).to_series()
    finite = differences.filter(differences.is_finite())
    largest = float(finite.to_numpy().max()) if finite.len() else None
    n, n_failed = finite.len(), scored_again.height - finite.len()
    return table([Row(None, None, "permutation_difference", largest, None, None, n, n_failed)])

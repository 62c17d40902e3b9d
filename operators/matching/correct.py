"""Which answers are right."""

import polars as pl

from operators.matching.match import contains

_ANSWER = ("pair_id", "key")


def correct(answers: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    r"""Add to each answer whether some object label of its pair is contained in it.

    `answers` has pair_id and key (and any other columns), `labels` one row an object label:
    pair_id, key. Row order and columns are kept; the new column is `correct`, a Boolean that is
    False for an empty answer and for a pair without labels.

    Source: BELIEF-ICL, section 3.2, item 1 (one-directional matching).

    >>> answers = pl.DataFrame({
    ...     "pair_id": ["t1", "t1", "t2"], "key": ["\x1fa\x1fguitar\x1f", "\x1fpiano\x1f", None]
    ... })
    >>> labels = pl.DataFrame({"pair_id": ["t1", "t2"], "key": ["\x1fguitar\x1f", "\x1fjapan\x1f"]})
    >>> correct(answers, labels)["correct"].to_list()
    [True, False, False]
    """
    right = _right_answers(answers, labels).with_columns(correct=pl.lit(True))
    joined = answers.join(right, on=_ANSWER, how="left", maintain_order="left")
    return joined.with_columns(pl.col("correct").fill_null(False))


def _right_answers(answers: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    distinct = answers.select(_ANSWER).drop_nulls().unique()
    labelled = distinct.join(labels.select("pair_id", label="key"), on="pair_id")
    return labelled.filter(contains(pl.col("key"), pl.col("label"))).select(_ANSWER).unique()

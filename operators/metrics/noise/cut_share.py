"""Cut share: how many answers end because they may not be longer, and not by themselves.

What is computed of an answer's words (One-word ratio, BERTScore, a length) is then of the cut.
"""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import counted, plain_rows, table


def cut_share(answers: pl.DataFrame) -> pl.DataFrame:
    """Give the share of answers that ended at `max_tokens`: over all, and over each relation.

    Needs relation_id and finish_reason, as the engine says it ("length" where it was cut); those
    without a reason do not count. No row where none has one, as of another system's answers.

    >>> ends = {"relation_id": ["P1", "P1", "P2"], "finish_reason": ["length", "stop", None]}
    >>> cut_share(pl.DataFrame(ends)).select("slice", "value", "n").rows()
    [(None, 0.5, 2), ('relation=P1', 0.5, 2)]
    """
    told = answers.drop_nulls("finish_reason")
    if told.is_empty():
        return table([])
    sums = told.select("relation_id", numerator=_IS_CUT, denominator=pl.lit(1.0))
    return table(plain_rows(CUT_SHARE.name, sums, counted(told)))


_IS_CUT = (pl.col("finish_reason") == "length").cast(pl.Float64)

CUT_SHARE = Metric(
    "cut_share",
    heading="cut",
    says="share of answers that ended at max_tokens, and not by themselves",
    better="lower",
)

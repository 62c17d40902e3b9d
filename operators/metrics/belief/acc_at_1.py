"""Acc@1: how often a prompt of a pair is answered correctly, on average."""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import pair_terms


def acc_at_1_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair the share of its prompts that are answered correctly (0 to 1), over 1.

    Needs the columns relation_id, pair_id and correct. A pair without any answer is left out.

    Source: BELIEF, section 2.2, "Average accuracy". The paper averages N = 50,000 random draws;
    this is their expected value, computed exactly.

    >>> ids = {"relation_id": ["P1"] * 3, "pair_id": ["t1", "t1", "t2"]}
    >>> answers = pl.DataFrame({**ids, "correct": [True, False, True]})
    >>> acc_at_1_terms(answers)["numerator"].to_list()
    [0.5, 1.0]
    """
    return pair_terms(answers, pl.mean("correct"), pl.lit(1.0))


ACC_AT_1 = Metric(
    "acc_at_1",
    heading="Acc@1",
    says="share of prompts answered right, averaged over facts; 0 to 1",
    better="higher",
    terms=acc_at_1_terms,
)

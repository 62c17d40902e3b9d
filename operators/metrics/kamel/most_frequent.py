"""The baseline that a model should beat: always a relation's most frequent training answer."""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric


def most_frequent_answers(train: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """Answer each query of `asked` with its relation's most frequent answer: pair_id, text.

    Both are tables of pairs. An answer counts once per query; of equally frequent ones, the first
    by its text is taken. A relation without training queries has no answers.

    Source: KAMEL, section 4.2, "Detailed Analysis" (an F1 of 9.7 %).

    >>> train = pl.DataFrame({
    ...     "relation_id": ["P30"] * 3, "pair_id": ["t1", "t2", "t3"],
    ...     "objects": [[{"labels": [each]}] for each in ("Asia", "Antarctica", "Antarctica")],
    ... })
    >>> asked = pl.DataFrame({"relation_id": ["P30"], "pair_id": ["q1"]})
    >>> most_frequent_answers(train, asked).rows()
    [('q1', 'Antarctica')]
    """
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").list.first())
    shown = train.select("relation_id", text=labels.list.unique()).explode("text").drop_nulls()
    counted = shown.group_by("relation_id", "text").len()
    counted = counted.sort("relation_id", "len", "text", descending=[False, True, False])
    best = counted.unique("relation_id", keep="first", maintain_order=True)
    answered = asked.join(best, on="relation_id", maintain_order="left")
    return answered.select("pair_id", "text")


BASELINE_F1 = Metric(
    "baseline_f1",
    heading="F1 of the most frequent answer",
    says="what always giving the relation's commonest answer would score",
)

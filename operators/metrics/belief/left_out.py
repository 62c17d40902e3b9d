"""What a masked model cannot say: how much of the facts its vocabulary leaves out."""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import Counts, plain_rows, table

UNITS = ("labels", "objects", "pairs")


def left_out(counts: pl.DataFrame) -> pl.DataFrame:
    """Give the shares that are left out, as rows of the table ROWS.

    `labels_left_out`: of the distinct labels of right objects, those that are not one token of the
    model; `objects_left_out`: of the right objects of pairs, those without such a label;
    `pairs_left_out`: of the pairs, those without such an object, which are not asked. `n` counts
    labels, objects or pairs. `counts` comes from `operators.prompts.candidates.count_left_out`.

    Source: BELIEF, footnote 6.

    >>> counts = pl.DataFrame({
    ...     "relation_id": ["P19"], "n_labels": [2], "n_labels_left_out": [1], "n_objects": [3],
    ...     "n_objects_left_out": [2], "n_pairs": [2], "n_pairs_left_out": [1],
    ... })
    >>> left_out(counts).drop_nulls("slice").select("metric", pl.col("value").round(4), "n").rows()
    [('labels_left_out', 0.5, 2), ('objects_left_out', 0.6667, 3), ('pairs_left_out', 0.5, 2)]
    """
    rows = []
    for unit in UNITS:
        sums = counts.select(
            "relation_id",
            numerator=pl.col(f"n_{unit}_left_out").cast(pl.Float64),
            denominator=pl.col(f"n_{unit}").cast(pl.Float64),
        )
        sizes = dict(counts.select("relation_id", f"n_{unit}").iter_rows())
        rows += plain_rows(f"{unit}_left_out", sums, Counts(sizes, {}))
    return table(rows)


OBJECTS_LEFT_OUT = Metric(
    "objects_left_out",
    heading="objects left out",
    says="share of the right objects that the model has no single token for",
)

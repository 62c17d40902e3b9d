"""The self-test of scoring: how far two scorings of the same items, in other orders, lie apart."""

import polars as pl

from factsweep.operators.metrics.shared.rows import Row, table


def permutation_difference(scores: pl.DataFrame, again: pl.DataFrame) -> pl.DataFrame:
    """The largest absolute difference of the log-probabilities, in nats (one row of table BELIEF).

    Both have item_id and logprob; `again` those that were scored twice. n counts the items that
    have a number in both, n_failed the other items of `again`. Null where n is 0.

    Source: no paper. An engine batches texts as they come, and a batch moves the last digits.

    >>> scores = pl.DataFrame({"item_id": ["a", "b", "c"], "logprob": [-8.0, -9.0, -2.0]})
    >>> again = pl.DataFrame({"item_id": ["b", "a"], "logprob": [-9.25, -8.0]})
    >>> permutation_difference(scores, again).select("metric", "value", "n", "n_failed").row(0)
    ('permutation_difference', 0.25, 2, 0)
    """
    first = scores.select("item_id", first=pl.col("logprob").cast(pl.Float64))
    both = again.select("item_id", second=pl.col("logprob").cast(pl.Float64)).join(
        first, on="item_id", how="left"
    )
    differences = both.select((pl.col("first") - pl.col("second")).abs()).to_series()
    found = differences.filter(differences.is_finite())
    largest = float(found.to_numpy().max()) if found.len() else None
    n, n_failed = found.len(), again.height - found.len()
    return table([Row(None, None, "permutation_difference", largest, None, None, n, n_failed)])

"""A curve of estimates, each with an interval: a band that holds for all of them at once.

Of k intervals of 95 % one of twenty misses. With an error of 1 − .95^(1/k) each, all hold with 95 %
at least, however their errors go together (Šidák 1967, of normal errors): those of models that were
asked the same prompts do, and by how much need not be known. Each side of an interval is stretched
by the ratio of the two quantiles.
"""

import polars as pl

from factsweep.operators.estimates.looks import Z

_LEVEL = 0.95


def stretch(n: int) -> float:
    """How many times as wide n intervals of 95 % are that hold together.

    >>> stretch(1), stretch(12)
    (1.0, 1.458...)
    """
    from scipy.stats import norm

    return float(norm.isf((1 - _LEVEL ** (1 / max(1, n))) / 2)) / Z


def banded(points: pl.DataFrame) -> pl.DataFrame:
    """The points with a band of what the full runs give, which holds for all of a setting at once.

    Columns read: setting, value, ci_low, ci_high and estimated, which is null where all prompts
    were asked: there the value is known. Written: band_low and band_high; null where an estimate
    has no interval.
    """
    is_part = pl.col("estimated").is_not_null()
    n = (is_part & pl.col("ci_low").is_not_null()).sum().over("setting")
    wider = pl.when(is_part).then(n.map_elements(stretch, return_dtype=pl.Float64)).otherwise(0.0)
    return points.with_columns(
        (pl.col("value") + wider * (pl.col(f"ci_{end}") - pl.col("value")))
        .clip(0, 1)
        .alias(f"band_{end}")
        for end in ("low", "high")
    )

"""How much prompt types, and metrics, agree over models: Pearson's correlation.

Source: PRobELM, section 5.1. The paper does not say what is correlated. Its four numbers (.8281,
.8672, .8976; .9982) are those of all cells of two groups of columns in Table 2 taken together: two
prompt types over models × metrics, two metrics over models × prompt types.
"""

from itertools import combinations
from typing import Literal

import polars as pl

_KEYS = ("model", "benchmark", "setting", "variant", "slice", "metric")
CORRELATIONS = pl.Schema(
    {"first": pl.String, "second": pl.String, "pearson": pl.Float64, "n": pl.Int64}
)


def correlations(
    metrics: pl.DataFrame, between: Literal["setting", "metric"], names: tuple[str, ...]
) -> pl.DataFrame:
    """Correlate each two of the settings (or metrics) `names` (columns: CORRELATIONS).

    `metrics` has model, setting, metric and value, and may have benchmark, variant and slice: two
    values are compared where all but `between` is the same. `n` counts those couples. Null: fewer
    than two, or one side is constant.

    >>> metrics = pl.DataFrame({
    ...     "model": ["a", "b", "c"] * 2, "setting": ["statement"] * 3 + ["question"] * 3,
    ...     "metric": "mrr", "value": [0.1, 0.2, 0.3, 0.2, 0.4, 0.6],
    ... })
    >>> correlations(metrics, "setting", ("statement", "question")).rows()
    [('statement', 'question', 1.0, 3)]
    """
    kept = metrics.filter(pl.col(between).is_in(names)).drop_nulls("value")
    same = [name for name in _KEYS if name != between and name in kept.columns]
    rows = []
    for first, second in combinations(names, 2):
        one, other = (
            kept.filter(pl.col(between) == name).drop(between) for name in (first, second)
        )
        both = one.join(other, on=same, nulls_equal=True)
        pearson = both.select(pl.corr("value", "value_right").fill_nan(None)).item()
        rows.append((first, second, pearson, both.height))
    return pl.DataFrame(rows, schema=CORRELATIONS, orient="row")

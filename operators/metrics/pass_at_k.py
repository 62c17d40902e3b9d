"""pass@k: the share of facts with a right answer among k samples, of every benchmark that samples.

Source: Chen et al. 2021, equation 1. The fact is the unit of the intervals. pass@k never falls as
k rises.
"""

from collections.abc import Mapping
from typing import Unpack

import polars as pl

from factsweep.operators.metrics.shared.bootstrap import Draws, bootstrap_ratios
from factsweep.operators.metrics.shared.rows import Metric, count_answers, pair_terms, table

KS = (1, 2, 5, 10, 25, 50, 100)
METRICS = tuple(
    Metric(f"pass_at_{k}", f"pass@{k}", f"share of facts with a right one of {k} samples", "higher")
    for k in KS
)
NAMES = tuple(metric.name for metric in METRICS)


def pass_rows(
    samples: pl.DataFrame, n_failed: pl.DataFrame | None, **draws: Unpack[Draws]
) -> pl.DataFrame:
    """The rows of pass@k (table ROWS), over everything and by relation.

    `samples` is the table `sampled`; `n_failed` (relation_id, n_failed) counts the prompts without
    samples; null: no samples were asked, and there are no rows.
    """
    if n_failed is None:
        return table([])
    counts = count_answers(samples, n_failed)
    bootstrapped = bootstrap_ratios(pass_terms(samples), **draws)
    return table(
        [row for name, result in bootstrapped.items() for row in counts.rows(name, result)]
    )


def pass_terms(samples: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """The terms of pass@k, for each k that every sampled prompt has samples for.

    `samples` has relation_id, pair_id, n_samples and n_right_samples.

    >>> rows = pl.DataFrame({"relation_id": "r", "pair_id": "a", "n_samples": 4,
    ...     "n_right_samples": [1]})
    >>> {name: terms["numerator"].item() for name, terms in pass_terms(rows).items()}
    {'pass_at_1': 0.25, 'pass_at_2': 0.5}
    """
    if samples.is_empty():
        return {}
    fewest = int(samples.select(pl.min("n_samples")).item())
    return {f"pass_at_{k}": _pass_at(samples, k) for k in KS if k <= fewest}


def _pass_at(samples: pl.DataFrame, k: int) -> pl.DataFrame:
    """The terms of 1 − C(n − c, k) / C(n, k), unbiased for n samples of which c are right."""
    n, n_wrong = pl.col("n_samples"), pl.col("n_samples") - pl.col("n_right_samples")
    none_right = pl.lit(1.0)
    for place in range(k):  # a product of quotients: the binomials themselves are too large
        none_right = none_right * (n_wrong - place).clip(lower_bound=0) / (n - place)
    rows = samples.with_columns(passes=1 - none_right)
    return pair_terms(rows, pl.mean("passes"))

"""Several seeds of one setting as one row: the mean over seeds, its standard deviation, and n."""

from collections.abc import Sequence

import polars as pl

from factsweep.operators.schemas import PLACE


def over_seeds(metrics: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One row for each number of the metrics tables of several seeds.

    `value` is the mean over the seeds that have one, `sd` their standard deviation (over n − 1;
    null of a single one), `n_seeds` how many they are, of `n_asked`. An interval is null where
    there are several. `n` is the smallest of the seeds', `n_failed` the largest.
    """
    rows = pl.concat(metrics)
    alone = pl.len() == 1
    found = rows.group_by(PLACE, maintain_order=True).agg(
        pl.mean("value"),
        *(pl.when(alone).then(pl.first(name)).alias(name) for name in ("ci_low", "ci_high")),
        pl.min("n"),
        pl.max("n_failed"),
        sd=pl.std("value"),
        n_seeds=pl.col("value").count().cast(pl.Int64),
        n_asked=pl.len().cast(pl.Int64),
    )
    return found.select(*rows.columns, "sd", "n_seeds", "n_asked")


def mean_over_seeds(tables: Sequence[pl.DataFrame], *, weight: str | None = None) -> pl.DataFrame:
    """The rows of several seeds' tables with the mean of each number; the other columns name a row.

    Floating-point numbers are averaged, by the integers of the column `weight` where there is one,
    which are summed.
    """
    rows = pl.concat(tables)
    numbers = [name for name, dtype in rows.schema.items() if dtype.is_float()]
    keys = [name for name in rows.columns if name not in (*numbers, weight)]
    if weight is None:
        return rows.group_by(keys, maintain_order=True).agg(pl.mean(*numbers)).select(rows.columns)
    heavy = pl.col(weight)
    means = {
        name: (pl.col(name) * heavy).sum() / heavy.filter(pl.col(name).is_not_null()).sum()
        for name in numbers
    }
    found = rows.group_by(keys, maintain_order=True).agg(heavy.sum(), **means)
    defined = (pl.when(pl.col(name).is_not_nan()).then(name).alias(name) for name in numbers)
    return found.with_columns(*defined).select(rows.columns)

"""Published numbers: the columns of data_catalog/published/*.csv."""

import polars as pl

# `table` says where in the paper a number stands.
PUBLISHED = pl.Schema(
    {
        "model": pl.String,
        "benchmark": pl.String,
        "setting": pl.String,
        "variant": pl.String,
        "slice": pl.String,
        "metric": pl.String,
        "value": pl.Float64,
        "table": pl.String,
    }
)

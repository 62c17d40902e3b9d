"""Estimates from a part of a setting's prompts, marked as such."""

import polars as pl

from operators.metrics.belief.belief import METRICS
from operators.metrics.estimates.metric import headings
from operators.tables.shared.numbers import COUNT, DASH, SHARE, percent

_PERCENT = percent(2)


def estimates_table(found: pl.DataFrame) -> pl.DataFrame:
    """One row per setting and metric; columns in: `operators.schemas.SCHEMAS["estimates"]`.

    >>> found = pl.DataFrame({
    ...     "setting": ["zero-shot"], "variant": [None], "metric": ["acc_at_1"], "value": [0.25],
    ...     "full_low": [0.2481], "full_high": [0.2519], "ci_low": [0.23], "ci_high": [0.27],
    ...     "share": [0.01], "n": [64928], "why": [None],
    ... }, schema_overrides={"variant": pl.String, "why": pl.String})
    >>> estimates_table(found).row(0, named=True)["all prompts would give"]
    '.2481–.2519'
    """
    named = {name: heading or name for name, heading in headings(METRICS).items()}
    full = found.select(
        pl.all().exclude("ci_low", "ci_high"), ci_low="full_low", ci_high="full_high"
    ).select(SHARE.interval().fill_null(DASH))
    table = found.select(
        pl.concat_str("setting", "variant", separator=" ", ignore_nulls=True).alias("setting"),
        pl.col("metric").replace(named),
        SHARE.dashed(pl.col("value")).alias("estimate"),
        full.to_series().alias("all prompts would give"),
        SHARE.interval().fill_null(DASH).alias("other facts would give"),
        _PERCENT.column(pl.col("share")).alias("of the prompts"),
        COUNT.column(pl.col("n")).alias("prompts"),
        pl.col("why").fill_null("").alias("note"),
    )
    return table if found["why"].count() else table.drop("note")

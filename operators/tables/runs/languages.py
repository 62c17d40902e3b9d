"""Languages side by side, for people."""

import polars as pl

from factsweep.operators.tables.shared.numbers import SHARE


def across_table(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per ordered pair of languages, as texts (columns: `across_languages.ACROSS`)."""
    shown = []
    for name in ("sharing", "consist"):
        interval = SHARE.interval(ends=(f"{name}_low", f"{name}_high"))
        shown += [SHARE.dashed(pl.col(name)).alias(name), interval.alias(f"{name} 95 %")]
    return rows.select(
        pl.col("language").alias("known in"),
        pl.col("other").alias("and in"),
        pl.col("n_facts").alias("facts"),
        pl.col("n_known").alias("known"),
        pl.col("n_shared").alias("in both"),
        *shown,
    )


def alone_table(facts: pl.DataFrame) -> pl.DataFrame:
    """Facts that one language alone knows, as they are asked in it.

    Needs relation_id, subject, object and language.
    """
    return facts.select(
        pl.col("language").alias("known in"),
        pl.col("relation_id").alias("relation"),
        "subject",
        "object",
    )

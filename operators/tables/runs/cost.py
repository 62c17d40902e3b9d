"""The cost of a run by stage."""

import polars as pl

from factsweep.operators.tables.shared.numbers import COUNT, HOURS, MEGABYTES, MONEY, percent

_PERCENT = percent(1)
_COUNTS = ("prompts", "answers", "prompt_tokens", "output_tokens")
_SECONDS = ("seconds", "gpu_seconds", "core_seconds", "idle_seconds")


def cost_table(spent: pl.DataFrame) -> pl.DataFrame:
    """One row per stage and setting: prompts, tokens, hours and bytes.

    Columns in: `operators.cost.SPENT`. Hours are those of GPUs where there are any,
    else of cores; engine-hours count an engine once, however many of them it holds, and `idle` is
    the share of them in which an engine had nothing to answer. What a server charged is `spent`.
    """
    rows = spent.with_columns(gpu_seconds=pl.col("gpus") * pl.col("seconds"))
    charged = ["cost"] if "cost" in rows and rows["cost"].count() else []
    sums = (*_COUNTS, "cached_tokens", *_SECONDS, "bytes", *charged)
    # A sum of unknown parts is unknown.
    summed = (pl.when(pl.col(name).null_count() == 0).then(pl.sum(name)) for name in sums)
    table = rows.group_by("stage", "setting", maintain_order=True).agg(summed)
    engine = pl.col("prompt_tokens").is_not_null()
    hours = pl.when(pl.col("gpu_seconds") > 0).then("gpu_seconds").otherwise("core_seconds") / 3600
    return table.sort("setting", nulls_last=False, maintain_order=True).select(
        "setting",
        "stage",
        *(COUNT.column(pl.col(name)).alias(name.replace("_", " ")) for name in _COUNTS),
        _PERCENT.column(_finite(pl.col("cached_tokens") / pl.col("prompt_tokens"))).alias("cached"),
        *(MONEY.column(pl.col(name)).alias("spent") for name in charged),
        HOURS.column(pl.when(engine).then(pl.col("seconds") / 3600)).alias("engine-hours"),
        _PERCENT.column(_finite(pl.col("idle_seconds") / pl.col("seconds"))).alias("idle"),
        HOURS.column(pl.when(pl.col("gpu_seconds") > 0).then(hours)).alias("GPU-hours"),
        HOURS.column(pl.when(pl.col("core_seconds") > 0).then(hours)).alias("core-hours"),
        MEGABYTES.column(pl.col("bytes")).alias("MB"),
    )


def _finite(share: pl.Expr) -> pl.Expr:
    """The share; null where it was divided by 0."""
    return pl.when(share.is_finite()).then(share)

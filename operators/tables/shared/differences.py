"""Differences as people read them: numbers, intervals and corrected p-values as texts."""

import polars as pl

from factsweep.operators.tables.shared.numbers import SHARE


def number(name: str, *, signed: bool = False) -> pl.Expr:
    """A column of numbers, with four digits."""
    return SHARE.column(pl.col(name), signed=signed)


def interval() -> pl.Expr:
    """The interval of a difference."""
    return SHARE.interval(" to ", signed=True).alias("95 % interval")


def p_holm() -> pl.Expr:
    """The p-value after Holm's correction; the smallest are not written out.

    >>> pl.DataFrame({"p_holm": [0.00001, 0.0117]}).select(p_holm()).to_series().to_list()
    ['<.0001', '.0117']
    """
    p = pl.col("p_holm")
    return pl.when(p < 0.00005).then(pl.lit("<.0001")).otherwise(SHARE.column(p)).alias("p (Holm)")

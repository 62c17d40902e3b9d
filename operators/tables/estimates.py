"""Tables of estimates from a part of the prompts, marked as such."""

import polars as pl

from factsweep.operators.metrics.belief.belief import METRICS as BELIEF
from factsweep.operators.metrics.kamel import METRICS as KAMEL
from factsweep.operators.metrics.probelm import METRICS as PROBELM
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.tables.formats import markdown
from factsweep.operators.tables.shared.numbers import COUNT, DASH, SHARE, percent, shares_interval
from factsweep.operators.tables.shared.pivot import join_names

_HEADINGS = headings((*BELIEF, *KAMEL, *PROBELM))
_PERCENT = percent(2)


def format_share(estimates: pl.DataFrame) -> str:
    """The part of the prompts that was asked.

    >>> shares = [[0.01, 0.05], [0.01]]
    >>> tuple(format_share(pl.DataFrame({"share": values})) for values in shares)
    ('1.00% to 5.00%', '1.00%')
    """
    low, high = map(_PERCENT.text, estimates.select(a=pl.min("share"), b=pl.max("share")).row(0))
    return low if low == high else f"{low} to {high}"


def format_report(estimates: pl.DataFrame) -> str:
    """The report of estimates: the sentence that marks them, and their table."""
    share, table = format_share(estimates), markdown(estimates_table(estimates)).strip()
    return (
        f"Estimates from {share} of the prompts: no number here is that of a full run. "
        f"Intervals are those of 95 %.\n\n{table}\n"
    )


def estimates_table(estimates: pl.DataFrame, *, whose: bool = False) -> pl.DataFrame:
    """One row per setting and metric; columns in: `operators.schemas.SCHEMAS["estimates"]`.

    With `whose`, the first columns name model and benchmark.

    >>> found = pl.DataFrame({
    ...     "setting": ["zero-shot"], "variant": [None], "metric": ["acc_at_1"], "value": [0.25],
    ...     "full_low": [0.2481], "full_high": [0.2519], "ci_low": [0.23], "ci_high": [0.27],
    ...     "share": [0.01], "n": [64928], "why": [None], "n_effective": [None],
    ... }, schema_overrides={"variant": pl.String, "why": pl.String, "n_effective": pl.Float64})
    >>> estimates_table(found).row(0, named=True)["all prompts would give"]
    '.2481–.2519'
    """
    full = SHARE.interval(ends=("full_low", "full_high"))
    table = estimates.select(
        *(["model", "benchmark"] if whose else []),
        join_names("setting", "variant").alias("setting"),
        pl.col("metric").replace(_HEADINGS),
        SHARE.column_with_dashes(pl.col("value")).alias("estimate"),
        full.fill_null(DASH).alias("all prompts would give"),
        shares_interval("other facts would give"),
        _PERCENT.column(pl.col("share")).alias("of the prompts"),
        COUNT.column(pl.col("n")).alias("prompts"),
        COUNT.column_with_dashes(pl.col("n_effective").round()).alias("worth prompts"),
        pl.col("why").fill_null("").alias("note"),
    )
    empty = {"worth prompts": "n_effective", "note": "why"}
    return table.drop(name for name, column in empty.items() if not estimates[column].count())

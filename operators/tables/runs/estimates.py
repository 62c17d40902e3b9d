"""Estimates from a part of a setting's prompts, marked as such."""

import polars as pl

from operators.metrics.belief.belief import METRICS as BELIEF
from operators.metrics.estimates.metric import headings
from operators.metrics.kamel.kamel import METRICS as KAMEL
from operators.metrics.probelm.probelm import METRICS as PROBELM
from operators.metrics.sampled.maximum import TEMPLATE_CHOSEN
from operators.metrics.sampled.variance import advice
from operators.tables.formats.markdown import markdown
from operators.tables.shared.numbers import COUNT, DASH, SHARE, percent

_PERCENT = percent(2)
_WHOLE = percent(0)


def written(estimates: pl.DataFrame, variance: pl.DataFrame) -> str:
    """The report of estimates: the numbers, then where their variance comes from."""
    parts = [
        "Estimates from a part of the prompts, with 95 % intervals.",
        markdown(estimates_table(estimates)),
    ]
    for (setting, variant), rows in variance.group_by("setting", "variant", maintain_order=True):
        title = " ".join(str(each) for each in (setting, variant) if each is not None)
        parts += [
            f"Where the variance of Acc@1 comes from ({title}). {advice(rows)}",
            markdown(variance_table(rows)),
        ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def variance_table(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per source of variance; columns in: `operators.metrics.sampled.variance.VARIANCE`.

    Each column but the first two has the shares of a sum; a dash where the sum is 0.

    >>> rows = pl.DataFrame({
    ...     "source": ["fact", "rest"], "variance": [0.15, 0.05], "full_error": [0.0, 2e-6],
    ...     "other_error": [3e-5, 2e-6],
    ... })
    >>> variance_table(rows).row(0)
    ('fact', '.1500', '75%', '0%', '94%')
    """
    shares = {
        "of an answer": "variance",
        "of the full run's estimate": "full_error",
        "of other facts' estimate": "other_error",
    }
    return rows.select(
        "source",
        SHARE.column(pl.col("variance")).alias("variance"),
        *(_part(column).alias(heading) for heading, column in shares.items()),
    )


def _part(column: str) -> pl.Expr:
    total = pl.col(column).sum()
    share = pl.when(total > 0).then(pl.col(column) / total)
    return _WHOLE.dashed(share)


def estimates_table(found: pl.DataFrame) -> pl.DataFrame:
    """One row per setting and metric; columns in: `operators.schemas.SCHEMAS["estimates"]`.

    >>> found = pl.DataFrame({
    ...     "setting": ["zero-shot"], "variant": [None], "metric": ["acc_at_1"], "value": [0.25],
    ...     "full_low": [0.2481], "full_high": [0.2519], "ci_low": [0.23], "ci_high": [0.27],
    ...     "share": [0.01], "n": [64928], "why": [None], "n_effective": [None],
    ... }, schema_overrides={"variant": pl.String, "why": pl.String, "n_effective": pl.Float64})
    >>> estimates_table(found).row(0, named=True)["all prompts would give"]
    '.2481–.2519'
    """
    named = headings((*BELIEF, TEMPLATE_CHOSEN, *KAMEL, *PROBELM))
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
        COUNT.dashed(pl.col("n_effective").round()).alias("worth prompts"),
        pl.col("why").fill_null("").alias("note"),
    )
    empty = {"worth prompts": "n_effective", "note": "why"}
    return table.drop(name for name, column in empty.items() if not found[column].count())

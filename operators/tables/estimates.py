"""Estimates from a part of a setting's prompts, marked as such."""

from collections.abc import Iterator

import polars as pl

from factsweep.operators.metrics.belief.belief import METRICS as BELIEF
from factsweep.operators.metrics.kamel import METRICS as KAMEL
from factsweep.operators.metrics.probelm import METRICS as PROBELM
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.tables.formats import markdown
from factsweep.operators.tables.shared.numbers import COUNT, DASH, SHARE, percent
from factsweep.operators.tables.shared.wide import called

_HEADINGS = headings((*BELIEF, *KAMEL, *PROBELM))
_PERCENT = percent(2)


def written(estimates: pl.DataFrame) -> str:
    """The report of estimates."""
    table = markdown(estimates_table(estimates)).strip()
    return f"{mark(estimates)} Intervals are those of 95 %.\n\n{table}\n"


def asked(estimates: pl.DataFrame) -> str:
    """The part of the prompts that was asked.

    >>> asked(pl.DataFrame({"share": [0.01, 0.05]})), asked(pl.DataFrame({"share": [0.01]}))
    ('1.00% to 5.00%', '1.00%')
    """
    low, high = map(_PERCENT.text, estimates.select(a=pl.min("share"), b=pl.max("share")).row(0))
    return low if low == high else f"{low} to {high}"


def mark(estimates: pl.DataFrame) -> str:
    """The sentence that stands over estimates wherever they are shown."""
    part = asked(estimates)
    return f"Estimates from {part} of the prompts: no number here is that of a full run."


def compared(differences: pl.DataFrame, first: str, second: str) -> pl.DataFrame:
    """The differences of two runs, of which one is an estimate or both, as texts.

    Columns in: `operators.metrics.comparing.verdict.DIFFERENCES`.

    >>> row = {"metric": "acc_at_1", "first": 0.5, "second": 0.6, "difference": 0.1,
    ...     "ci_low": 0.06, "ci_high": 0.13}
    >>> compared(pl.DataFrame([row]), "old", "new").row(0)
    ('Acc@1', '.5000', '.6000', '+.1000', '+.0600 to +.1300')
    """
    return differences.select(
        pl.col("metric").replace(_HEADINGS),
        SHARE.dashed(pl.col("first")).alias(first),
        SHARE.dashed(pl.col("second")).alias(second),
        SHARE.column(pl.col("difference"), signed=True).fill_null(DASH).alias("difference"),
        SHARE.interval(" to ", signed=True).fill_null(DASH).alias("95 % interval of full runs"),
    )


def title(rows: pl.DataFrame) -> str:
    """The setting of some rows, with its variant."""
    return " ".join(each for each in rows.select("setting", "variant").row(0) if each is not None)


def estimates_table(found: pl.DataFrame, *, whose: bool = False) -> pl.DataFrame:
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
    table = found.select(
        *(["model", "benchmark"] if whose else []),
        called("setting", "variant").alias("setting"),
        *numbers_table(found).iter_columns(),
        _PERCENT.column(pl.col("share")).alias("of the prompts"),
        COUNT.column(pl.col("n")).alias("prompts"),
        COUNT.dashed(pl.col("n_effective").round()).alias("worth prompts"),
        pl.col("why").fill_null("").alias("note"),
    )
    empty = {"worth prompts": "n_effective", "note": "why"}
    return table.drop(name for name, column in empty.items() if not found[column].count())


def numbers_table(found: pl.DataFrame) -> pl.DataFrame:
    """The metrics with their estimates and intervals alone, as texts."""
    full = SHARE.interval(ends=("full_low", "full_high"))
    return found.select(
        pl.col("metric").replace(_HEADINGS),
        SHARE.dashed(pl.col("value")).alias("estimate"),
        full.fill_null(DASH).alias("all prompts would give"),
        SHARE.interval().fill_null(DASH).alias("other facts would give"),
    )


def notes(found: pl.DataFrame) -> Iterator[str]:
    """Why metrics have no estimate: a sentence per reason.

    >>> rows = {"metric": ["range", "maximum", "acc_at_1"], "why": ["too few", "too few", None]}
    >>> list(notes(pl.DataFrame(rows)))
    ['range, maximum: too few.']
    """
    known = found.drop_nulls("why")
    for (why,), rows in known.group_by("why", maintain_order=True):
        yield f"{', '.join(map(heading, rows['metric']))}: {why}."


def heading(metric: str) -> str:
    """What a metric is called in tables."""
    return _HEADINGS.get(metric, metric)

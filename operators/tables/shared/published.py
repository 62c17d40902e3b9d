"""A run next to the published numbers of the same model and setting."""

import polars as pl

from factsweep.operators.schemas import PLACE
from factsweep.operators.tables.shared import wide

# The columns of data_catalog/published/*.csv; `table` says where in the paper a number stands.
PUBLISHED = pl.Schema(
    {**dict.fromkeys(PLACE, pl.String()), "value": pl.Float64(), "table": pl.String()}
)


def beside(metrics: pl.DataFrame, published: pl.DataFrame) -> pl.DataFrame:
    """One row for each measured number that was published, and table that has it.

    `published` has the columns `PUBLISHED`. Columns: model, benchmark, setting, variant, slice,
    metric, table, measured, ci_low, ci_high, source, published, difference (measured − published;
    null if the published number is of other facts).
    """
    theirs = wide.with_source(published).rename({"value": "published"})
    theirs = theirs.cast(dict.fromkeys(PLACE, pl.String))
    ours = metrics.rename({"value": "measured"}).cast(dict.fromkeys(PLACE, pl.String))
    # Papers print four digits; more would be the noise of floating point.
    rounded = (pl.col("measured") - pl.col("published")).round(6)
    difference = pl.when(pl.col("source") == wide.PUBLISHED).then(rounded).alias("difference")
    both = theirs.join(ours, on=PLACE, nulls_equal=True, maintain_order="left")
    numbers = ("measured", "ci_low", "ci_high", "source", "published")
    return both.select(*PLACE, "table", *numbers, difference)


def of_other_facts(
    published: pl.DataFrame, benchmark: str, *, by_relation: bool = True
) -> pl.DataFrame:
    """The published numbers; those of the benchmark are marked as of other facts.

    Without `by_relation` those of one relation are not: the same facts of it were asked.
    """
    is_other = pl.col("benchmark").eq_missing(benchmark)
    if not by_relation:
        is_other &= ~pl.col("slice").str.starts_with("relation=").fill_null(value=False)
    source = pl.when(is_other).then(pl.lit(wide.OTHER_FACTS)).otherwise(pl.lit(wide.PUBLISHED))
    return published.with_columns(source=source)


def asked_with(metrics: pl.DataFrame, scope: str) -> pl.DataFrame:
    """The runs whose demonstrations were drawn by `scope` (`prompt` or `shared`), under one name.

    The papers draw for each prompt, which here is the variant `scope=prompt`. Runs without
    demonstrations belong to both.

    >>> runs = pl.DataFrame({"setting": ["zero-shot", "4-random", "4-random"],
    ...     "variant": [None, None, "templates=manual,scope=prompt"]})
    >>> [asked_with(runs, scope)["variant"].to_list() for scope in ("prompt", "shared")]
    [[None, 'templates=manual'], [None, None]]
    """
    parts = pl.col("variant").fill_null("").str.split(",")
    by_prompt = parts.list.contains("scope=prompt")
    chosen = by_prompt if scope == "prompt" else ~by_prompt
    bare = ~pl.col("setting").str.contains(r"^\d").fill_null(False)
    rest = parts.list.filter(pl.element() != "scope=prompt").list.join(",")
    return metrics.filter(chosen | bare).with_columns(variant=pl.when(rest != "").then(rest))

"""Tables with one row per key and one column per heading: sources, what is joined, order."""

from collections.abc import Collection, Mapping, Sequence

import polars as pl

from factsweep.operators.schemas import PLACE
from factsweep.operators.tables.shared.numbers import DASH
from factsweep.operators.tables.shared.relations import is_relation, label_of, relation_id

MEASURED, PUBLISHED = "measured", "published"
OTHER_FACTS = "published, of other facts"  # next to which no difference is shown
_BASELINE = "baseline_"


def joined(table: pl.DataFrame, further: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """The table with further columns of its rows; null where there are none."""
    return table.join(further, on=on, how="left", nulls_equal=True, maintain_order="left")


def wide(
    cells: pl.DataFrame, keys: Sequence[str], headings: Collection[str], missing: str | None = DASH
) -> pl.DataFrame:
    """The cells (keys, heading, text) as a table, columns in the order of `headings`.

    Other headings follow by name; cells without one are a row all the same. A missing number is a
    dash, or what else `missing` says.
    """
    there = set(cells["heading"].drop_nulls())
    shown = [*(each for each in headings if each in there), *sorted(there - {*headings})]
    table = cells.pivot("heading", shown, index=keys, values="text", aggregate_function="first")
    return table.with_columns(pl.col(shown).fill_null(pl.lit(missing, pl.String)))


def by_source(
    metrics: pl.DataFrame, published: pl.DataFrame | None, baseline: str = ""
) -> pl.DataFrame:
    """The rows with their `source`: measured, of the baseline, and published of the same places.

    A metric of the baseline is called as what it is the baseline of.
    """
    is_baseline = pl.col("metric").str.starts_with(_BASELINE)
    source = pl.when(is_baseline).then(pl.lit(baseline)).otherwise(pl.lit(MEASURED))
    rows = metrics.with_columns(pl.col("metric").str.strip_prefix(_BASELINE), source=source)
    if published is None:
        return rows
    theirs = published.join(metrics, on=PLACE, how="semi", nulls_equal=True)
    return pl.concat([rows, with_source(theirs)], how="diagonal_relaxed")


def with_source(published: pl.DataFrame) -> pl.DataFrame:
    """The published numbers with their `source`: of the facts that were measured, if none is said.

    >>> with_source(pl.DataFrame({"value": [0.5]}))["source"].to_list()
    ['published']
    """
    if "source" in published.columns:
        return published
    return published.with_columns(source=pl.lit(PUBLISHED))


def of_relations(metrics: pl.DataFrame, labels: Mapping[str, str] | None) -> pl.DataFrame:
    """The rows that are of one relation, with its ID and its Label."""
    label = label_of(relation_id(), labels or {})
    return metrics.filter(is_relation()).with_columns(ID=relation_id(), Label=label)


def ordered(
    table: pl.DataFrame, keys: Sequence[str], rows: pl.DataFrame, *, best_first: bool
) -> pl.DataFrame:
    """The table of relations by its keys and the `value` of each in `rows`, undefined ones last."""
    place = [*keys, "ID"]
    order = [*keys, "value", "ID"]
    found = joined(table, rows.select(*place, "value"), place)
    descending = [best_first and each == "value" for each in order]
    last = [each == "value" for each in order]
    return found.sort(order, descending=descending, nulls_last=last).drop("value")

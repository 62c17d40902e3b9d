"""Tables of runs: one row per key, one column per heading; relations, sources, seeds, cards."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from factsweep.operators.metrics.shared.rows import Metric, headings
from factsweep.operators.schemas import PLACE, SETTING
from factsweep.operators.tables.shared.numbers import (
    DASH,
    Number,
    as_printed,
    interval_as_printed,
    numbers_of,
    percent,
)

_SLICE = "relation="
_WHOLE = percent(0)


def is_relation() -> pl.Expr:
    """Whether a row of the metrics table is of one relation."""
    return pl.col("slice").str.starts_with(_SLICE)


def relation_id() -> pl.Expr:
    """The id of the relation that a row of the metrics table is of: `relation=P36` is P36."""
    return pl.col("slice").str.strip_prefix(_SLICE)


def label_of(relation: pl.Expr, labels: Mapping[str, str]) -> pl.Expr:
    """The relation's label, or else its id."""
    return relation.replace_strict(dict(labels), default=relation, return_dtype=pl.String)


def relation_name(relation: pl.Expr, label: pl.Expr) -> pl.Expr:
    """A relation as its id and its label; a label that is missing or the id adds nothing.

    >>> table = pl.DataFrame({"id": ["P36", "P19"], "label": ["capital", "P19"]})
    >>> table.select(relation_name(pl.col("id"), pl.col("label")))["id"].to_list()
    ['P36 capital', 'P19']
    """
    suffix = pl.when(label != relation).then(label)
    return pl.concat_str(relation, suffix, separator=" ", ignore_nulls=True)


def best_and_worst(
    shares: pl.DataFrame, templates: pl.DataFrame, relations: pl.DataFrame
) -> pl.DataFrame:
    """One row per relation of several templates, the widest gap first; shares in percent.

    `shares` has template_id and share (of its prompts that were answered right).

    >>> templates = pl.DataFrame({
    ...     "template_id": ["a", "b"], "relation_id": ["P36"] * 2, "text": ["[X]: [Y]", "[Y], [X]"],
    ... })
    >>> relations = pl.DataFrame({"relation_id": ["P36"], "label": ["capital"]})
    >>> shares = pl.DataFrame({"template_id": ["a", "b"], "share": [0.5, 0.25]})
    >>> best_and_worst(shares, templates, relations).row(0)
    ('P36 capital', '[X]: [Y]', '50%', '[Y], [X]', '25%', '25%')
    """
    template_shares = shares.join(
        templates.select("template_id", "relation_id", "text"), on="template_id"
    )
    ranked = template_shares.sort("share", "template_id", descending=[True, False])
    first, last = pl.first("share"), pl.last("share")
    ends = {
        "best template": pl.first("text"),
        "best right": first,
        "worst template": pl.last("text"),
        "worst right": last,
        "gap": first - last,
    }
    several = ranked.group_by("relation_id").agg(**ends, n=pl.len()).filter(pl.col("n") > 1)
    rows = several.join(relations, on="relation_id", how="left")
    relation = relation_name(pl.col("relation_id"), pl.col("label")).alias("relation")
    rows = rows.sort("gap", "relation_id", descending=[True, False]).select(relation, *ends)
    return rows.with_columns(
        _WHOLE.column(pl.col(column)) for column in ends if "template" not in column
    )


MEASURED, PUBLISHED = "measured", "published"
OTHER_FACTS = "published, of other facts"  # next to which no difference is shown
_BASELINE = "baseline_"


def join_columns(table: pl.DataFrame, columns: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """The table with further columns of its rows; null where there are none."""
    return table.join(columns, on=on, how="left", nulls_equal=True, maintain_order="left")


def pivot(
    cells: pl.DataFrame, keys: Sequence[str], headings: Collection[str], missing: str | None = DASH
) -> pl.DataFrame:
    """The cells (keys, heading, text) as a table, columns as in `headings`, then others by name."""
    present = set(cells["heading"].drop_nulls())
    columns = [*(heading for heading in headings if heading in present)]
    columns += sorted(present - {*headings})
    table = cells.pivot("heading", columns, index=keys, values="text", aggregate_function="first")
    return table.with_columns(pl.col(columns).fill_null(pl.lit(missing, pl.String)))


def stack_sources(
    metrics: pl.DataFrame, published: pl.DataFrame | None, baseline: str = ""
) -> pl.DataFrame:
    """The rows with their `source`: measured, baseline, and published for the same places."""
    is_baseline = pl.col("metric").str.starts_with(_BASELINE)
    source = pl.when(is_baseline).then(pl.lit(baseline)).otherwise(pl.lit(MEASURED))
    rows = metrics.with_columns(pl.col("metric").str.strip_prefix(_BASELINE), source=source)
    if published is None:
        return rows
    printed = published.join(metrics, on=PLACE, how="semi", nulls_equal=True)
    return pl.concat([rows, add_source(printed)], how="diagonal_relaxed")


def add_source(published: pl.DataFrame) -> pl.DataFrame:
    """The published numbers with their `source`; the default is that of the measured facts."""
    if "source" in published.columns:
        return published
    return published.with_columns(source=pl.lit(PUBLISHED))


def select_relations(metrics: pl.DataFrame, labels: Mapping[str, str] | None) -> pl.DataFrame:
    """The rows that are of one relation, with its ID and its Label."""
    label = label_of(relation_id(), labels or {})
    return metrics.filter(is_relation()).with_columns(ID=relation_id(), Label=label)


def sort_relations(
    table: pl.DataFrame, keys: Sequence[str], rows: pl.DataFrame, *, best_first: bool
) -> pl.DataFrame:
    """The table of relations sorted by keys and their `value` in `rows`, undefined ones last."""
    place = [*keys, "ID"]
    order = [*keys, "value", "ID"]
    with_values = join_columns(table, rows.select(*place, "value"), place)
    descending = [best_first and column == "value" for column in order]
    nulls_last = [column == "value" for column in order]
    return with_values.sort(order, descending=descending, nulls_last=nulls_last).drop("value")


def has_seeds(metrics: pl.DataFrame) -> bool:
    """Whether some setting was measured by several seeds."""
    return "n_asked" in metrics.columns and bool((metrics["n_asked"] > 1).any())


def spread(metrics: pl.DataFrame, number: Number) -> pl.Expr:
    """A suffix of means over seeds: standard deviation and number of seeds; empty for the rest.

    >>> from factsweep.operators.tables.shared.numbers import SHARE
    >>> counts = {"n_seeds": [3, 1, 1], "n_asked": [3, 3, 1]}
    >>> metrics = pl.DataFrame({"sd": [0.0123, None, None], **counts})
    >>> metrics.select(spread(metrics, SHARE)).to_series().to_list()
    [' ± .0123 (3 seeds)', ' (1 of 3 seeds)', '']
    """
    if not has_seeds(metrics):
        return pl.lit("")
    deviation = pl.format(" ± {}", number.column(pl.col("sd"))).fill_null("")
    is_partial = pl.col("n_seeds") < pl.col("n_asked")
    count = pl.when(is_partial).then(pl.format("{} of {}", "n_seeds", "n_asked"))
    text = pl.format("{} ({} seeds)", deviation, count.otherwise(pl.format("{}", "n_seeds")))
    return pl.when(pl.col("n_asked") > 1).then(text).otherwise(pl.lit(""))


def add_seeds(table: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """A table of several settings with the column `seeds`, their numbers of seeds.

    >>> place = {"model": ["m", "m"], "benchmark": ["b"] * 2, "setting": ["x", "y"]}
    >>> metrics = pl.DataFrame({**place, "variant": [None] * 2, "n_asked": [3, 1]})
    >>> add_seeds(pl.DataFrame({"setting": ["x"], "F1": [0.5]}), metrics).row(0)
    ('x', 0.5, '3')
    """
    names = [name for name in SETTING if name in table.columns]
    if not names or "seeds" in table.columns:
        return table
    texts = pl.col("n_asked").unique().sort().cast(pl.String).str.join(", ")
    counts = metrics.group_by(names).agg(seeds=texts)
    return join_columns(table, counts, names)


def seeds_table(metrics: pl.DataFrame) -> pl.DataFrame:
    """The means over several seeds: one row per setting and metric over everything, as numbers."""
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("n_asked") > 1)
    return rows.select(
        *SETTING, "metric", pl.col("value").alias("mean"), pl.col("sd").alias("SD"), seeds="n_seeds"
    )


def card(
    metrics: pl.DataFrame, shown: Sequence[Metric], number: Number, row_variants: Sequence[str]
) -> pl.DataFrame:
    """The metrics of `shown` that have a title, over everything, with intervals or seeds.

    Variants whose name is in `row_variants` have rows of their own, the others columns; the kinds
    of confidence have a table of their own instead.
    """
    titles, numbers = headings(shown), numbers_of(shown, number)
    overall = metrics.filter(
        pl.col("slice").is_null(), ~is_kind(), pl.col("metric").is_in(list(titles))
    )
    parts = pl.col("variant").fill_null("").str.split(",")
    is_own = pl.element().str.split("=").list.first().is_in(list(row_variants))
    in_row, in_column = (parts.list.filter(part).list.join(",") for part in (is_own, ~is_own))
    heading = pl.col("metric").replace_strict(titles)
    value, interval = as_printed("value", numbers=numbers), interval_as_printed(numbers)
    rows = overall.select(
        metric=pl.concat_str(heading, in_row, separator=" ").str.strip_chars_end(),
        setting=pl.concat_str("setting", in_column, separator=" ").str.strip_chars_end(),
        number=pl.concat_str(value, interval, spread(overall, number)),
    )
    return rows.pivot("setting", index="metric", values="number", maintain_order=True)


def is_kind() -> pl.Expr:
    """Whether a row is of another kind of confidence than the benchmark's own, by its variant."""
    return pl.col("variant").str.contains("confidence=").fill_null(value=False)


class ModelSetting(NamedTuple):
    """A model in a setting: one row of a table of results."""

    model: str
    setting: str
    variant: str | None

    def __str__(self) -> str:
        return " ".join(filter(None, self))


def join_names(*names: str | pl.Expr) -> pl.Expr:
    """The values of some columns as one name, without nulls."""
    return pl.concat_str(*names, separator=" ", ignore_nulls=True)


class Answers(NamedTuple):
    """The answers to the prompts of some relations; `of` reads those of one.

    `tables_of` reads all matched tables of one, by name.
    """

    relations: tuple[str, ...]
    of: Callable[[str], pl.DataFrame]
    tables_of: Callable[[str], Mapping[str, pl.DataFrame]]

    def all(self) -> pl.DataFrame:
        """The answers of all relations."""
        return pl.concat(map(self.of, self.relations))

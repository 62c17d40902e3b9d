"""Layouts of a paper's tables, filled with measured and published numbers.

A number of the metrics table has a *place*: model, benchmark, setting, variant, slice, metric. A
row of a table fixes a part of it, a column another part; their cell shows the number of the place.
Parts that neither fixes are null; the default benchmark is that of the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import PLACE, SETTING
from factsweep.operators.tables.shared.numbers import DASH, as_printed
from factsweep.operators.tables.shared.pivot import OTHER_FACTS, PUBLISHED, add_source, join_columns

Place = Mapping[str, str | None]

_SOURCES = ("measured", "published", "difference")


@dataclass(frozen=True)
class Column:
    """A column: its heading (`{benchmark}`: that of the run), and the places that share a cell."""

    heading: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Table:
    """A paper's table: `heads` name a row, a cell within a place of `without` has no number.

    `printed_in`: its places in the papers (`003:5` is Table 5 of paper 003), the preferred first.
    """

    title: str
    printed_in: tuple[str, ...]
    heads: Mapping[str, str]
    rows: tuple[Place, ...]
    columns: tuple[Column, ...]
    without: tuple[Place, ...] = ()


class FilledTable(NamedTuple):
    """A table of texts, reasons for missing numbers, and the number of measured ones."""

    table: pl.DataFrame
    missing: pl.DataFrame
    n_measured: int


def fill(
    table: Table,
    metrics: pl.DataFrame,
    published: pl.DataFrame | None = None,
    *,
    benchmark: str,
    names: Mapping[str, str] = MappingProxyType({}),
    own_only: bool = False,
) -> FilledTable:
    """The table, filled from the metrics of any number of runs.

    Each row is measured, published or their difference (none to other facts). Further models
    follow. `own_only` drops other benchmarks and rows without a measured number. `names` are the
    printed names of models, settings and metrics.

    Raises:
        InputError: two different numbers for one cell, such as those of two runs of one setting.
    """
    metrics = metrics.cast(dict.fromkeys(PLACE, pl.String))
    cells = _cells(table, [*table.rows, *_further_rows(table, metrics, benchmark)], benchmark)
    cells = _add_measured(cells, metrics)
    if own_only:
        cells = cells.filter(pl.col("benchmark") == benchmark)
        cells = cells.filter(pl.col("measured").is_not_null().any().over("row"))
    cells = join_columns(cells, _first_printed(published, table.printed_in), PLACE)
    is_same = pl.col("source") == PUBLISHED
    difference = pl.when(is_same).then(pl.col("measured") - pl.col("published"))
    texts = _wide(cells.with_columns(difference=difference), table.heads, names)
    name = names.get(benchmark, benchmark)
    headings = {column: column.format(benchmark=name) for column in texts.columns}
    n_measured, models = cells["measured"].count(), set(metrics["model"].drop_nulls())
    if models and not any(row.get("model") in models for row in table.rows):
        # A run of other models lacks no number of a paper's models.
        cells = cells.filter(pl.col("model").is_null() | pl.col("model").is_in(list(models)))
    return FilledTable(texts.rename(headings), _missing(cells), n_measured)


def _cells(table: Table, rows: Sequence[Place], benchmark: str) -> pl.DataFrame:
    """One row per number of the table: its place, row, heading, and whether it applies."""
    places = [
        {**place, "heading": column.heading} for column in table.columns for place in column.places
    ]
    texts = dict.fromkeys(PLACE, pl.String())
    down = pl.DataFrame(rows, schema=texts, orient="row").with_row_index("row")
    across = pl.DataFrame(places, schema={**texts, "heading": pl.String()}, orient="row")
    cells = down.join(across, how="cross", suffix=" of column", maintain_order="left_right")
    cells = cells.with_columns(pl.coalesce(f"{name} of column", name).alias(name) for name in PLACE)
    without = (
        pl.all_horizontal(pl.col(n) == x for n, x in place.items()) for place in table.without
    )
    applies = ~pl.any_horizontal(pl.lit(False), *without).fill_null(False)
    cells = cells.select(*PLACE, "row", "heading", applies=applies)
    return cells.with_columns(pl.col("benchmark").fill_null(benchmark))


def _further_rows(table: Table, metrics: pl.DataFrame, benchmark: str) -> list[Place]:
    if "model" not in table.heads:
        return []
    paper_models = [row["model"] for row in table.rows]
    models = metrics.filter(benchmark=benchmark)["model"].drop_nulls().unique(maintain_order=True)
    settings = (tuple((n, x) for n, x in row.items() if n != "model") for row in table.rows)
    distinct = [*map(dict, dict.fromkeys(settings))]
    further_models = [model for model in models if model not in paper_models]
    rows = [{**setting, "model": model} for model in further_models for setting in distinct]
    cells = _cells(table, rows, benchmark).join(metrics, on=PLACE, how="semi", nulls_equal=True)
    return [rows[number] for number in cells["row"].unique().sort()]


def _add_measured(cells: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """The cells with `measured`, and `reason` where there is no number."""
    ours = metrics.select(*PLACE, measured="value", is_row=pl.lit(True)).unique()
    duplicates = ours.filter(ours.select(PLACE).is_duplicated())
    duplicates = cells.join(duplicates, on=PLACE, how="semi", nulls_equal=True)
    if not duplicates.is_empty():
        raise InputError(
            "metrics: {model}, {setting} has two different numbers for {metric} of {benchmark}; "
            "leave one of the two runs out.".format(**duplicates.row(0, named=True))
        )
    runs = metrics.select(*SETTING, is_run=pl.lit(True)).unique()
    undefined = pl.when("is_row").then(pl.lit("undefined"))
    unmeasured = undefined.when("is_run").then(pl.lit("not measured by the run"))
    is_missing = pl.col("applies") & pl.col("measured").is_null()
    reason = pl.when(is_missing).then(unmeasured.otherwise(pl.lit("no run")))
    return join_columns(join_columns(cells, ours, PLACE), runs, SETTING).with_columns(reason=reason)


def _first_printed(published: pl.DataFrame | None, tables: Sequence[str]) -> pl.DataFrame:
    if published is None:
        texts = dict.fromkeys((*PLACE, "source"), pl.String())
        return pl.DataFrame(schema={**texts, "published": pl.Float64()})
    rows = add_source(published).filter(pl.col("table").is_in(list(tables)))
    ordered = rows.sort(pl.col("table").cast(pl.Enum(tables)))
    first = ordered.unique(PLACE, keep="first").select(*PLACE, "source", published="value")
    return first.cast(dict.fromkeys(PLACE, pl.String()))


def _wide(cells: pl.DataFrame, heads: Mapping[str, str], names: Mapping[str, str]) -> pl.DataFrame:
    """One column per heading, one row per row and source, if the source has a number in the row."""
    labels = {head: pl.col(name).replace(dict(names)) for name, head in heads.items()}
    other = pl.when((pl.col("source") == OTHER_FACTS).any().over("row")).then(pl.lit(OTHER_FACTS))
    numbers = {name: as_printed(name, signed=name == "difference") for name in _SOURCES}
    texts = cells.with_columns(
        **labels,
        **{n: pl.when("applies").then(x).otherwise(pl.lit("n/a")) for n, x in numbers.items()},
        other=other,
    ).drop("source")
    long = texts.unpivot(
        _SOURCES,
        index=["row", *labels, "heading", "other"],
        variable_name="source",
        value_name="text",
    )
    empty = pl.col("text").is_in([DASH, "n/a"]).all().over("row", "source")
    source = pl.col("source")
    order = source.cast(pl.Enum(_SOURCES))
    return (
        long.filter((pl.col("source") == "measured") | ~empty)
        .sort("row", order, maintain_order=True)
        .with_columns(
            source=pl.when(source == PUBLISHED).then(pl.coalesce("other", source)).otherwise(source)
        )
        .group_by("row", *labels, "source", "heading", maintain_order=True)
        .agg(pl.col("text").str.join("/"))
        .pivot("heading", index=["row", *labels, "source"], values="text", maintain_order=True)
        .drop("row")
    )


def _missing(cells: pl.DataFrame) -> pl.DataFrame:
    metric = pl.concat_str("metric", "slice", separator=" ", ignore_nulls=True)
    metrics = metric.unique(maintain_order=True).str.join(", ")
    by_reason = cells.drop_nulls("reason").group_by(*SETTING, "reason", maintain_order=True)
    return by_reason.agg(metrics=metrics).select(*SETTING, "metrics", "reason")


# The columns of data_catalog/published/*.csv; `table` says where in the paper a number stands.
PUBLISHED_SCHEMA = pl.Schema(
    {**dict.fromkeys(PLACE, pl.String()), "value": pl.Float64(), "table": pl.String()}
)


def join_published(metrics: pl.DataFrame, published: pl.DataFrame) -> pl.DataFrame:
    """One row per measured number that was published, and per paper's table that has it."""
    printed = add_source(published).rename({"value": "published"})
    printed = printed.cast(dict.fromkeys(PLACE, pl.String))
    ours = metrics.rename({"value": "measured"}).cast(dict.fromkeys(PLACE, pl.String))
    # Papers print four digits; more would be the noise of floating point.
    rounded = (pl.col("measured") - pl.col("published")).round(6)
    difference = pl.when(pl.col("source") == PUBLISHED).then(rounded).alias("difference")
    rows = printed.join(ours, on=PLACE, nulls_equal=True, maintain_order="left")
    numbers = ("measured", "ci_low", "ci_high", "source", "published")
    return rows.select(*PLACE, "table", *numbers, difference)


def mark_other_facts(
    published: pl.DataFrame, benchmark: str, *, by_relation: bool = True
) -> pl.DataFrame:
    """The published numbers, those of the benchmark marked as of other facts."""
    is_other = pl.col("benchmark").eq_missing(benchmark)
    if not by_relation:
        is_other &= ~pl.col("slice").str.starts_with("relation=").fill_null(value=False)
    source = pl.when(is_other).then(pl.lit(OTHER_FACTS)).otherwise(pl.lit(PUBLISHED))
    return published.with_columns(source=source)


def select_scope(metrics: pl.DataFrame, scope: str) -> pl.DataFrame:
    """The runs whose demonstrations were drawn by `scope` (`prompt` or `shared`), under one name.

    The papers draw for each prompt (variant `scope=prompt`); runs without demonstrations are both.

    >>> runs = pl.DataFrame({"setting": ["zero-shot", "4-random", "4-random"],
    ...     "variant": [None, None, "templates=manual,scope=prompt"]})
    >>> [select_scope(runs, scope)["variant"].to_list() for scope in ("prompt", "shared")]
    [[None, 'templates=manual'], [None, None]]
    """
    parts = pl.col("variant").fill_null("").str.split(",")
    by_prompt = parts.list.contains("scope=prompt")
    chosen = by_prompt if scope == "prompt" else ~by_prompt
    bare = ~pl.col("setting").str.contains(r"^\d").fill_null(False)
    other_parts = parts.list.filter(pl.element() != "scope=prompt").list.join(",")
    return metrics.filter(chosen | bare).with_columns(
        variant=pl.when(other_parts != "").then(other_parts)
    )

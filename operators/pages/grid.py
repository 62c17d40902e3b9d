"""Tables on a page: texts, and a metric by relation in colours."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from factsweep.operators.tables.shared.numbers import DASH, SHARE, in_percent
from factsweep.operators.tables.shared.paper_table import join_published
from factsweep.operators.tables.shared.pivot import relation_id, spread

# A number as our tables print it: .1575, -.08, 17.62%, 1,600, .13–.18, .8175 (.7625–.8688), <.0001,
# -.01 to +.02, -.1 (-.3 to -.02), .5 ± .1 (3 seeds).
_NUMBER = re.compile(
    r"[-+±–<]?[\d.,]*\d%?"
    r"( ?[–(/][-+\d.,%–)/ ]*(to [-+\d.,%]+\))?| to [-+\d.,]+"
    r"|( ± [\d.,]+)? \([\d of]+ seeds\))?|–|n/a|"
)
STEPS = 20  # of the colour scale
_MOST_COLUMNS, _MOST_TILES = 40, 6  # on a page
_DARK = 0.55  # up to here white text reads best on cividis, from here black


@dataclass(frozen=True)
class Tile:
    """The main number of one row of results."""

    label: str
    value: str
    interval: str


@dataclass(frozen=True)
class Grid:
    """A table as texts. `numeric` marks the columns that hold numbers alone."""

    name: str
    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    n_left_out: int = 0


def grid(table: pl.DataFrame, name: str, title: str, *, most_rows: int = 100) -> Grid:
    """The first rows of a table as texts, without columns that have no value at all.

    >>> table = pl.DataFrame({"relation": ["capital"], "Acc@1": [0.81251], "variant": [None]})
    >>> texts = grid(table, "relations", "By relation")
    >>> texts.columns, texts.numeric, texts.rows
    (('relation', 'Acc@1'), (False, True), (('capital', '.8125'),))
    """
    names = [column for column in table.columns if table[column].null_count() < table.height]
    first_rows = table.select(names).head(most_rows)
    columns = [
        [SHARE.text(x) if isinstance(x, float) else DASH if x is None else str(x) for x in series]
        for series in first_rows.iter_columns()
    ]
    rows = tuple(zip(*columns, strict=True))
    numeric = tuple(
        all(map(_NUMBER.fullmatch, texts)) and any(text != DASH for text in texts)
        for texts in columns
    )
    return Grid(name, title, tuple(names), numeric, rows, table.height - first_rows.height)


@dataclass(frozen=True)
class Cell:
    """A number, and its step on the colour scale; a dash has none."""

    text: str
    step: int | None


@dataclass(frozen=True)
class HeatMap:
    """One row per relation, by their mean, the best first; one column per model and setting."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    n_left_out: int


def heat_map(metrics: pl.DataFrame, metric: str, labels: Mapping[str, str]) -> HeatMap | None:
    """The metric by relation; null where no row is of a relation.

    `metrics` has asked (model and setting), slice, metric, value.

    >>> rows = [("tiny zero-shot", "relation=P36", "acc_at_1", 0.25)]
    >>> table = pl.DataFrame(rows, schema=["asked", "slice", "metric", "value"], orient="row")
    >>> heat_map(table, "acc_at_1", {"P36": "capital"}).rows
    (('P36', 'capital', (Cell(text='25', step=5),)),)
    """
    rows = metrics.filter(pl.col("slice").str.contains(r"^relation=\w+$"), metric=metric)
    if rows.is_empty():
        return None
    rows = rows.with_columns(relation=relation_id())
    wide = rows.pivot("asked", index="relation", values="value", maintain_order=True)
    names = wide.columns[1:]
    order = [pl.mean_horizontal(names), pl.col("relation")]
    wide = wide.sort(order, descending=[True, False], nulls_last=True)
    columns = names[:_MOST_COLUMNS]
    cells = tuple(
        (str(relation), labels.get(relation) or "", tuple(map(_cell, values)))
        for relation, *values in wide.select("relation", *columns).iter_rows()
    )
    return HeatMap(tuple(columns), cells, len(names) - len(columns))


def _cell(value: float | None) -> Cell:
    if value is None:
        return Cell("–", None)
    return Cell(in_percent(0).text(value), round(STEPS * min(max(value, 0.0), 1.0)))


def scale() -> str:
    """The steps of the colour scale as CSS: cividis, which colour-blind readers can read.

    >>> scale().splitlines()[0]
    '.h0{background:#00224e;color:#fff}'
    """
    from matplotlib import colormaps
    from matplotlib.colors import rgb2hex

    colours = colormaps["cividis"]
    return "\n".join(
        f".h{step}{{background:{rgb2hex(colours(step / STEPS))};"
        f"color:{'#fff' if step <= _DARK * STEPS else '#000'}}}"
        for step in range(STEPS + 1)
    )


Card = Callable[[pl.DataFrame], pl.DataFrame]
_ASKED = ("model", "setting", "variant", "slice", "metric")
_BESIDE = (*_ASKED, "measured", "source", "published", "difference")


def headline(metrics: pl.DataFrame, card: Card) -> Grid:
    """One row per metric, one column per model and setting; `card` gives those of one model."""
    models = metrics["model"].unique(maintain_order=True).to_list()
    cards = [card(metrics.filter(model=model)) for model in models]
    if len(models) > 1:
        cards = [
            rows.rename({name: f"{model} {name}" for name in rows.columns if name != "metric"})
            for model, rows in zip(models, cards, strict=True)
        ]
    table, *other_cards = cards or [pl.DataFrame(schema={"metric": pl.String})]
    options: Any = {"how": "full", "coalesce": True, "maintain_order": "left_right"}
    for rows in other_cards:
        table = table.join(rows, on="metric", **options)
    return grid(table, "headline", "Metrics over all facts")


def tiles(metrics: pl.DataFrame, metric: str) -> Iterator[Tile]:
    """The main metric of each model and setting, in percent; none if there are too many.

    `metrics` has asked, slice, metric, value, ci_low, ci_high.
    """
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("metric") == metric).drop_nulls("value")
    if rows.height > _MOST_TILES:
        return
    rows = rows.with_columns(spread=spread(rows, in_percent(1)))
    columns = ("asked", "spread", "value", "ci_low", "ci_high")
    for name, seeds, *numbers in rows.select(columns).iter_rows():
        value, low, high = map(in_percent(1).text, numbers)
        yield Tile(name, f"{value} %", seeds if DASH in (low, high) else f"{low} – {high}")


def beside_published(metrics: pl.DataFrame, published: pl.DataFrame | None) -> Grid | None:
    """The measured numbers that a paper has too; null where there is none."""
    if published is None or (rows := join_published(metrics, published)).is_empty():
        return None
    return grid(rows.select(_BESIDE), "published", "Beside the published numbers", most_rows=60)

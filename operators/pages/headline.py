"""The headline of a page: every overall metric with its interval, and the main one at a glance."""

from collections.abc import Callable, Container, Iterator
from typing import Any

import polars as pl

from factsweep.operators.pages.grid import Grid, grid
from factsweep.operators.pages.page import Tile
from factsweep.operators.tables.shared.card import spread
from factsweep.operators.tables.shared.numbers import DASH, in_percent
from factsweep.operators.tables.shared.published import beside

Card = Callable[[pl.DataFrame], pl.DataFrame]
_ASKED = ("model", "setting", "variant", "slice", "metric")
_BESIDE = (*_ASKED, "measured", "source", "published", "difference")


def headline(metrics: pl.DataFrame, card: Card) -> Grid:
    """One row per metric, one column per model and setting; `card` gives those of one model.

    Without any answer there are no metrics, and the grid is empty.
    """
    models = metrics["model"].unique(maintain_order=True).to_list()
    cards = [card(metrics.filter(model=model)) for model in models]
    if len(models) > 1:
        cards = [
            each.rename({name: f"{model} {name}" for name in each.columns if name != "metric"})
            for model, each in zip(models, cards, strict=True)
        ]
    together, *others = cards or [pl.DataFrame(schema={"metric": pl.String})]
    how: Any = {"how": "full", "coalesce": True, "maintain_order": "left_right"}
    for each in others:
        together = together.join(each, on="metric", **how)
    return grid(together, "headline", "Metrics over all facts")


def tiles(metrics: pl.DataFrame, metric: str, *, most: int = 6) -> Iterator[Tile]:
    """The main metric of each model and setting, in percent; none where there are too many.

    `metrics` has asked, slice, metric, value, ci_low, ci_high.
    """
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("metric") == metric).drop_nulls("value")
    if rows.height > most:
        return
    rows = rows.with_columns(spread=spread(rows, in_percent(1)))
    columns = ("asked", "spread", "value", "ci_low", "ci_high")
    for asked, seeds, *numbers in rows.select(columns).iter_rows():
        value, low, high = map(in_percent(1).text, numbers)
        yield Tile(asked, f"{value} %", seeds if DASH in (low, high) else f"{low} – {high}")


def estimated_tiles(estimates: pl.DataFrame, metrics: Container[str]) -> Iterator[Tile]:
    """The main number of each model and setting with its interval, in percent, as an estimate."""
    for row in estimates.drop_nulls("value").iter_rows(named=True):
        if row["metric"] in metrics:
            numbers = (row[name] for name in ("value", "full_low", "full_high", "share"))
            value, low, high, share = map(in_percent(1).text, numbers)
            asked = " ".join(filter(None, (row["model"], row["setting"], row["variant"])))
            yield Tile(asked, f"≈ {value} %", f"{low} – {high}, from {share} % of the prompts")


def beside_published(metrics: pl.DataFrame, published: pl.DataFrame | None) -> Grid | None:
    """The measured numbers that a paper has too; null where there is none."""
    if published is None or (rows := beside(metrics, published)).is_empty():
        return None
    return grid(rows.select(_BESIDE), "published", "Beside the published numbers", most_rows=60)

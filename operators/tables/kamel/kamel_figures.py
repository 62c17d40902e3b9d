"""Figures 1a and 1b of the KAMEL paper: F1 by number of answers, and of literals and entities."""

from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.tables.shared.canvas import canvas
from factsweep.operators.tables.shared.series import SERIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def cardinality_figure(slices: pl.DataFrame, title: str) -> "Figure":
    """Figure 1a: one line per series, with its intervals, over the number of right answers.

    `slices` has series, cardinality, f1, ci_low and ci_high (`tables.kamel.by_slice`).
    """
    figure = canvas(4.6, 3.6)
    axes = figure.add_subplot()
    rows = slices.with_columns(pl.col("cardinality").cast(pl.Int64)).drop_nulls("f1")
    for number, series in enumerate(rows["series"].unique(maintain_order=True)):
        colour, marker = SERIES[number % len(SERIES)]
        points = rows.filter(pl.col("series") == series).sort("cardinality")
        x, f1 = points["cardinality"], 100 * points["f1"]
        axes.plot(x, f1, color=colour, marker=marker, label=series)
        low, high = (100 * points[end].fill_null(points["f1"]) for end in ("ci_low", "ci_high"))
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="right answers of the query", ylabel="F1 in %", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(color="0.92")
    axes.legend(frameon=False)
    return figure


def kind_figure(slices: pl.DataFrame, title: str) -> "Figure":
    """Figure 1b: for each series a bar of its entity queries and one of its literal queries.

    `slices` has series, kind, f1, ci_low and ci_high (`tables.kamel.by_slice`).
    """
    figure = canvas(4.6, 3.6)
    axes = figure.add_subplot()
    names = slices["series"].unique(maintain_order=True).to_list()
    for number, kind in enumerate(("entity", "literal")):
        rows = slices.filter(pl.col("kind") == kind).drop_nulls("f1")
        places = [names.index(series) + 0.4 * number - 0.2 for series in rows["series"]]
        f1 = 100 * rows["f1"]
        low, high = (100 * rows[end].fill_null(rows["f1"]) for end in ("ci_low", "ci_high"))
        colour, _ = SERIES[number]
        axes.bar(places, f1, 0.38, color=colour, label=kind, yerr=[f1 - low, high - f1])
    axes.set(ylabel="F1 in %", title=title)
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
    axes.grid(color="0.92", axis="y")
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    return figure

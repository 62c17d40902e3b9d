"""The figures of the BELIEF papers: calibration, coverage, knowledge sharing, templates."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from factsweep.operators.tables.shared import canvas
from factsweep.operators.tables.shared.canvas import SERIES, Figure
from factsweep.operators.tables.shared.numbers import SHORT_SHARE
from factsweep.operators.tables.shared.wide import called, is_relation, label_of, named, relation_id

_ALONE_INCHES, _PANEL_INCHES = 4.0, 2.3
_MOST_IN_A_ROW = 4
_DARK = 0.7  # where black text on the map's blue is no longer read with ease
_SHARES = {
    "acc_at_1": "mean prompt",
    "coverage_maximum": "best template",
    "coverage_oracle": "any prompt",
}


def calibration_figure(bins: pl.DataFrame, title: str) -> "Figure":
    """One panel per `panel` of the bins, one line per `series`; overconfident is below."""
    panels = bins["panel"].unique(maintain_order=True).to_list()
    names = bins["series"].unique(maintain_order=True).to_list()
    n_columns = min(len(panels), _MOST_IN_A_ROW)
    n_rows = math.ceil(len(panels) / _MOST_IN_A_ROW)
    legend_columns = max(2, min(len(names) + 1, 2 * n_columns))
    legend_rows = math.ceil((len(names) + 1) / legend_columns)
    side = _PANEL_INCHES if len(panels) > 1 else _ALONE_INCHES
    height = (side + 0.2) * n_rows + 0.8 + 0.2 * legend_rows
    figure = canvas.blank(max(side * n_columns + 0.4, 3.4), height)
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
        rows, x, y = bins.filter(panel=panel), "mean_confidence", "mean_accuracy"
        canvas.curves(axes, rows, x, y, names=names, markersize=3.5, linewidth=1.2)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.set_aspect("equal")
        axes.grid(color="0.92")
        axes.set_title(panel, fontsize="medium")
    ticks = [0, 0.5, 1] if len(panels) > 1 else np.linspace(0, 1, 6)
    grid[0].set(xticks=ticks, yticks=ticks)  # which all panels share
    for axes in grid[len(panels) :]:
        axes.remove()
    # The axes above a removed one are the lowest of their column.
    for axes in grid[len(panels) - n_columns : len(panels)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("confidence")
    for axes in grid[::n_columns]:
        axes.set_ylabel("Acc@1")
    lines = {str(line.get_label()): line for axes in grid for line in axes.lines}
    canvas.below(figure, legend_columns, handles=lines.values())
    if len(panels) > 1:
        figure.suptitle(title)
    return figure


def coverage(metrics: pl.DataFrame) -> pl.DataFrame:
    """The shares of each run that has all three: run, metric, value, ci_low, ci_high."""
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("metric").is_in(list(_SHARES)))
    run = called("model", "setting", "variant").alias("run")
    rows = rows.drop_nulls("value").select(run, "metric", "value", "ci_low", "ci_high")
    return rows.filter(pl.col("metric").n_unique().over("run") == len(_SHARES))


def coverage_figure(shares: pl.DataFrame) -> "Figure":
    """One row per run (`coverage`): three marks on the scale from 0 to 1, with 95 % intervals."""
    runs = shares["run"].unique(maintain_order=True).to_list()
    figure, axes = canvas.in_rows(runs, 5.2, 0.3, 1.2, xlabel="share of facts", xlim=(-0.02, 1.02))
    for (metric, label), (colour, marker) in zip(_SHARES.items(), SERIES, strict=False):
        rows = shares.filter(metric=metric)
        places = [runs.index(run) for run in rows["run"]]
        low, high = (rows[name].fill_null(rows["value"]) for name in ("ci_low", "ci_high"))
        axes.hlines(places, low, high, color=colour, linewidth=1.2)
        axes.plot(rows["value"], places, marker, color=colour, markersize=5.5, label=label)
    canvas.below(figure, 3)
    return figure


def knowledge_sharing_figure(shares: pl.DataFrame, title: str) -> "Figure":
    """One square per pair of runs: the share of the left run's knowledge that the top run has.

    `shares` has run, other and value. What was not measured is grey, with a dash.
    """
    both = pl.concat([shares["run"], shares["other"].alias("run")])
    runs = both.unique(maintain_order=True).to_list()
    values = dict(zip(shares.select("run", "other").rows(), shares["value"], strict=True))
    square = [[values.get((run, other)) for other in runs] for run in runs]
    side = 0.55 * len(runs) + 1.8
    figure = canvas.blank(side, side + 0.6)
    axes = figure.add_subplot()
    axes.set_facecolor("0.85")
    axes.imshow(np.array(square, dtype=float), cmap="Blues", vmin=0, vmax=1)
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
    for (y, x), value in np.ndenumerate(np.array(square, dtype=object)):
        colour = "white" if value is not None and value > _DARK else "black"
        axes.text(x, y, SHORT_SHARE.text(value), color=colour, **look)
    places = range(len(runs))
    axes.set_xticks(places, runs, rotation=90)
    axes.set_yticks(places, runs)
    axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False, length=0)
    axes.spines[:].set_visible(False)
    said = "of what the left one knows,\nthe share that the top one knows"
    figure.supxlabel(said, fontsize="small")
    figure.suptitle(title)
    return figure


def spread_by_relation(
    metrics: pl.DataFrame, relation_labels: Mapping[str, str] = MappingProxyType({})
) -> pl.DataFrame:
    """The accuracy of each relation's worst, mean and best template in one run, the best first."""
    relation = named(relation_id(), label_of(relation_id(), relation_labels))
    part = pl.col("metric").str.strip_prefix("template_spread_")
    rows = metrics.filter(is_relation()).select("value", relation=relation, part=part)
    parts = ("min", "mean", "max")
    table = rows.pivot("part", parts, index="relation", values="value", aggregate_function="first")
    return table.drop_nulls().sort("mean", "relation", descending=[True, False])


def template_spread_figure(spread: pl.DataFrame, title: str) -> "Figure":
    """One bar per relation (`spread_by_relation`), worst to best template, and the mean."""
    labels = {"xlabel": "Acc@1 of a template", "title": title, "xlim": (-0.02, 1.02)}
    figure, axes = canvas.in_rows(spread["relation"].to_list(), 5.2, 0.19, 1.3, **labels)
    places = range(spread.height)
    (bar, _), (dot, marker) = SERIES[:2]
    width = spread["max"] - spread["min"]
    axes.barh(places, width, 0.5, spread["min"], color=bar, alpha=0.35, label="worst to best")
    axes.plot(spread["mean"], places, marker, color=dot, markersize=4.5, label="mean")
    canvas.below(figure, 2)
    return figure

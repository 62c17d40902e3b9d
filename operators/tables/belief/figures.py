"""The figures of the BELIEF papers: calibration, coverage, knowledge sharing, templates."""

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import polars as pl

from factsweep.operators.tables.shared.canvas import SERIES, Axes, Figure, canvas, series
from factsweep.operators.tables.shared.numbers import SHORT_SHARE
from factsweep.operators.tables.shared.relations import is_relation, label_of, named, relation_id


def calibration_figure(bins: pl.DataFrame, title: str) -> "Figure":
    """One line per setting through its bins, and the diagonal of a perfectly calibrated model.

    `bins` has setting, mean_confidence and mean_accuracy, one row per bin.
    """
    figure = canvas(4.6, 4.4)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    for setting, mine, colour, marker in series(bins, "setting"):
        points = mine.sort("mean_confidence")
        axes.plot(
            points["mean_confidence"],
            points["mean_accuracy"],
            color=colour,
            marker=marker,
            label=setting,
        )
    axes.set(xlabel="confidence", ylabel="Acc@1", title=title, xlim=(0, 1), ylim=(-0.02, 1.02))
    axes.set_aspect("equal")
    axes.grid(color="0.92")
    axes.legend(frameon=False)
    return figure


_PANEL_INCHES = 2.3
_MOST_IN_A_ROW = 4
# A series beyond the colours has the first one's colour and another stroke.
_STROKES = ("-", ":", "-.")


def calibration_panels(bins: pl.DataFrame, title: str) -> "Figure":
    """One panel per model, and in it one line per setting; or whatever `panel` and `series` name.

    `bins` has panel, series, mean_confidence and mean_accuracy, one row per bin. A series looks the
    same in all panels. Below the dashed diagonal a model is overconfident.
    """
    panels = bins["panel"].unique(maintain_order=True).to_list()
    n_columns = min(len(panels), _MOST_IN_A_ROW)
    n_rows = math.ceil(len(panels) / _MOST_IN_A_ROW)
    series = bins["series"].unique(maintain_order=True).to_list()
    legend_columns = max(2, min(len(series) + 1, 2 * n_columns))
    legend_rows = math.ceil((len(series) + 1) / legend_columns)
    size = (
        max(_PANEL_INCHES * n_columns + 0.4, 3.4),
        (_PANEL_INCHES + 0.2) * n_rows + 0.8 + 0.2 * legend_rows,
    )
    figure = canvas(*size)
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, bins.filter(panel=panel), series)
        axes.set_title(panel, fontsize="medium")
    for axes in grid[len(panels) :]:
        axes.remove()
    # The axes above a removed one are the lowest of their column.
    for axes in grid[len(panels) - n_columns : len(panels)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("confidence")
    for axes in grid[::n_columns]:
        axes.set_ylabel("Acc@1")
    lines = {str(line.get_label()): line for axes in grid for line in axes.lines}
    figure.legend(
        handles=lines.values(),
        loc="outside lower center",
        ncols=legend_columns,
        frameon=False,
        fontsize="small",
    )
    figure.suptitle(title)
    return figure


def _draw_panel(axes: "Axes", bins: pl.DataFrame, series: list[str]) -> None:
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    for number, name in enumerate(series):
        points = bins.filter(series=name).sort("mean_confidence")
        if points.is_empty():
            continue
        colour, marker = SERIES[number % len(SERIES)]
        axes.plot(
            points["mean_confidence"],
            points["mean_accuracy"],
            color=colour,
            marker=marker,
            markersize=3.5,
            linewidth=1.2,
            linestyle=_STROKES[number // len(SERIES) % len(_STROKES)],
            label=name,
        )
    ticks = [0, 0.5, 1]
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=ticks, yticks=ticks)
    axes.set_aspect("equal")
    axes.grid(color="0.92")


_SHARES = {
    "acc_at_1": "mean prompt",
    "coverage_maximum": "best template",
    "coverage_oracle": "any prompt",
}


def coverage(metrics: pl.DataFrame) -> pl.DataFrame:
    """The shares of each run that has all three: run, metric, value, ci_low, ci_high.

    >>> names = {"model": "tiny", "setting": "zero-shot", "variant": None, "slice": None}
    >>> rows = [{**names, "metric": metric, "value": 0.5, "ci_low": None, "ci_high": None}
    ...     for metric in ("acc_at_1", "coverage_maximum", "coverage_oracle")]
    >>> coverage(pl.DataFrame(rows))["run"].unique().to_list()
    ['tiny zero-shot']
    """
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("metric").is_in(list(_SHARES)))
    names = pl.concat_str("model", "setting", "variant", separator=" ", ignore_nulls=True)
    rows = rows.drop_nulls("value").select(
        names.alias("run"), "metric", "value", "ci_low", "ci_high"
    )
    return rows.filter(pl.col("metric").n_unique().over("run") == len(_SHARES))


def coverage_figure(shares: pl.DataFrame) -> "Figure":
    """One row per run: three marks on the scale from 0 to 1, each with its 95 % interval.

    `shares` is what `coverage` gives.
    """
    runs = shares["run"].unique(maintain_order=True).to_list()
    figure = canvas(5.2, 0.3 * len(runs) + 1.2)
    axes = figure.add_subplot()
    for (metric, label), (colour, marker) in zip(_SHARES.items(), SERIES, strict=False):
        rows = shares.filter(metric=metric)
        places = [runs.index(run) for run in rows["run"]]
        low, high = (rows[name].fill_null(rows["value"]) for name in ("ci_low", "ci_high"))
        axes.hlines(places, low, high, color=colour, linewidth=1.2)
        axes.plot(rows["value"], places, marker, color=colour, markersize=5.5, label=label)
    axes.set_yticks(range(len(runs)), runs, fontsize="small")
    axes.invert_yaxis()
    axes.margins(y=0.15 if len(runs) > 2 else 0.5)
    axes.set(xlabel="share of facts", xlim=(-0.02, 1.02))
    axes.tick_params(axis="y", length=0)
    axes.grid(color="0.92", axis="x")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    return figure


_DARK = 0.7  # where black text on the map's blue is no longer read with ease


def knowledge_sharing_figure(shares: pl.DataFrame, title: str) -> "Figure":
    """One square per pair of runs: the share of the left run's knowledge that the top run has.

    `shares` has run, other and value. What was not measured is grey, with a dash.
    """
    both = pl.concat([shares["run"], shares["other"].alias("run")])
    runs = both.unique(maintain_order=True).to_list()
    values = dict(zip(shares.select("run", "other").rows(), shares["value"], strict=True))
    square = [[values.get((run, other)) for other in runs] for run in runs]
    side = 0.55 * len(runs) + 1.8
    figure = canvas(side, side + 0.6)
    axes = figure.add_subplot()
    axes.set_facecolor("0.85")
    axes.imshow(np.array(square, dtype=float), cmap="Blues", vmin=0, vmax=1)
    for y, row in enumerate(square):
        for x, value in enumerate(row):
            axes.text(
                x,
                y,
                SHORT_SHARE.text(value),
                ha="center",
                va="center",
                fontsize="small",
                color="white" if value is not None and value > _DARK else "black",
            )
    places = range(len(runs))
    axes.set_xticks(places, runs, rotation=90)
    axes.set_yticks(places, runs)
    axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False, length=0)
    axes.spines[:].set_visible(False)
    figure.supxlabel(
        "of what the left one knows,\nthe share that the top one knows", fontsize="small"
    )
    figure.suptitle(title)
    return figure


_PARTS = ("min", "mean", "max")


def spread_by_relation(
    metrics: pl.DataFrame, relation_labels: Mapping[str, str] = MappingProxyType({})
) -> pl.DataFrame:
    """The accuracy of each relation's worst, mean and best template: relation, min, mean, max.

    Rows of one run, by their mean, the best first; a relation is its id and its label.
    """
    label = label_of(relation_id(), relation_labels)
    rows = metrics.filter(
        is_relation(), pl.col("metric").is_in([f"template_spread_{part}" for part in _PARTS])
    ).select(
        "value",
        relation=named(relation_id(), label),
        part=pl.col("metric").str.strip_prefix("template_spread_"),
    )
    # A part that no row has is a column of nulls all the same.
    wide = rows.group_by("relation", maintain_order=True).agg(
        pl.col("value").filter(pl.col("part") == part).first().alias(part) for part in _PARTS
    )
    return wide.drop_nulls().sort("mean", "relation", descending=[True, False])


def template_spread_figure(spread: pl.DataFrame, title: str) -> "Figure":
    """One bar per relation from its worst to its best template, with a dot at the mean.

    `spread` has relation, min, mean and max (`spread_by_relation`).
    """
    figure = canvas(5.2, 0.19 * spread.height + 1.3)
    axes = figure.add_subplot()
    places = range(spread.height)
    (bar, _), (dot, marker) = SERIES[:2]
    width = spread["max"] - spread["min"]
    axes.barh(places, width, 0.5, spread["min"], color=bar, alpha=0.35, label="worst to best")
    axes.plot(spread["mean"], places, marker, color=dot, markersize=4.5, label="mean")
    axes.set_yticks(places, spread["relation"], fontsize="small")
    axes.invert_yaxis()
    axes.set(xlabel="Acc@1 of a template", title=title, xlim=(-0.02, 1.02))
    axes.margins(y=0.01)
    axes.tick_params(axis="y", length=0)
    axes.grid(color="0.92", axis="x")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure

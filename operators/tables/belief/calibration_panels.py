"""Calibration curves of several runs side by side (Figures 1, 5 and 6 of BELIEF)."""

import math
from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.tables.shared.canvas import canvas
from factsweep.operators.tables.shared.series import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        _draw(axes, bins.filter(panel=panel), series)
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


def _draw(axes: "Axes", bins: pl.DataFrame, series: list[str]) -> None:
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

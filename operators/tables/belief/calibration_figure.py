"""The calibration figure: how often the model is right, at each level of confidence (Figure 1)."""

from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.tables.shared.canvas import canvas
from factsweep.operators.tables.shared.series import SERIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def calibration_figure(bins: pl.DataFrame, title: str) -> "Figure":
    """One line per setting through its bins, and the diagonal of a perfectly calibrated model.

    `bins` has setting, mean_confidence and mean_accuracy, one row per bin.
    """
    figure = canvas(4.6, 4.4)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    for number, setting in enumerate(bins["setting"].unique(maintain_order=True)):
        colour, marker = SERIES[number % len(SERIES)]
        points = bins.filter(setting=setting).sort("mean_confidence")
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

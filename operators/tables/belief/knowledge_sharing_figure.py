"""The heat map of what runs know in common (Figure 2 of BELIEF, Figure 4 of its 2025 version)."""

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from factsweep.operators.tables.shared.canvas import canvas
from factsweep.operators.tables.shared.numbers import SHORT_SHARE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

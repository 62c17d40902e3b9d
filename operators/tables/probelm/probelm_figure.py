"""Figure 2 of the PRobELM paper: plausibility over time frames, with each model's cut-off."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.tables.shared.canvas import canvas
from factsweep.operators.tables.shared.series import SERIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def frames_figure(
    frames: pl.DataFrame, title: str, cutoffs: Mapping[str, str] | None = None
) -> "Figure":
    """One line per series over its time frames, with intervals; a dotted line at its cut-off.

    `frames` has series, frame (2023-11), value, ci_low and ci_high (`tables.probelm.over_frames`);
    `cutoffs` has the month in which a series' training data ends. A marker is hollow where the
    frame begins before it.
    """
    figure = canvas(6.4, 3.8)
    axes = figure.add_subplot()
    rows = frames.drop_nulls("value")
    for number, series in enumerate(rows["series"].unique(maintain_order=True)):
        colour, marker = SERIES[number % len(SERIES)]
        points = rows.filter(pl.col("series") == series).sort("frame")
        years, value = [_years(frame) for frame in points["frame"]], 100 * points["value"]
        ends = (points[end].cast(pl.Float64) * 100 for end in ("ci_low", "ci_high"))
        low, high = (end.fill_null(value) for end in ends)
        axes.plot(years, value, color=colour, marker=marker, label=series)
        axes.vlines(years, low, high, color=colour, alpha=0.5)
        cutoff = (cutoffs or {}).get(series)
        if cutoff is not None:
            axes.axvline(_years(cutoff), color=colour, linestyle=":", zorder=0)
            seen = points["frame"] < cutoff
            at, of = pl.Series(years, dtype=pl.Float64).filter(seen), value.filter(seen)
            axes.plot(at, of, marker, color=colour, markerfacecolor="white")
    years_asked = sorted({int(frame[:4]) for frame in rows["frame"]})
    axes.set_xticks(range(years_asked[0], years_asked[-1] + 2) if years_asked else [])
    axes.set(xlabel="time frame (hollow: begins before the cut-off, which is dotted)", title=title)
    axes.set_ylabel("plausibility in %")
    axes.grid(color="0.92")
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _years(month: str) -> float:
    """A month as a number of years: 2023-11 → 2023.83."""
    return int(month[:4]) + (int(month[5:]) - 1) / 12

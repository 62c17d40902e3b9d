"""What figures share: their frame, the look of their series, curves and legends.

Matplotlib is loaded here, when something is drawn: that takes half a second.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

__all__ = ["SERIES", "Axes", "Figure", "below", "blank", "curves", "framed", "in_rows", "series"]

# Okabe and Ito's colours, which colour-blind readers tell apart; each with a marker of its own.
SERIES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
)
# A series beyond the colours has the first one's colour and another stroke.
_STROKES = ("-", ":", "-.")
_MOST_MARKED = 20  # points of a series


def blank(width: float, height: float) -> "Figure":
    """A figure of that size in inches, whose parts give each other room."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def framed(
    width: float, height: float, *, grid: Any = "both", **labels: Any
) -> tuple["Figure", "Axes"]:
    """A figure with one frame, whose labels are those of `Axes.set`, and a grid behind it all."""
    figure = blank(width, height)
    axes = figure.add_subplot()
    axes.set(**labels)
    axes.grid(color="0.92", axis=grid)
    axes.set_axisbelow(True)
    return figure, axes


def in_rows(
    names: Sequence[str], width: float, row: float, rest: float, **labels: Any
) -> tuple["Figure", "Axes"]:
    """A frame with a row for each name, the first at the top; each is `row` inches high."""
    figure, axes = framed(width, row * len(names) + rest, grid="x", **labels)
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def below(figure: "Figure", ncols: int, **how: Any) -> None:
    """Put the legend below everything."""
    given = {"fontsize": "small", **how}
    figure.legend(loc="outside lower center", ncols=ncols, frameon=False, **given)


def series(
    rows: pl.DataFrame, names: Sequence[str] = ()
) -> Iterator[tuple[pl.DataFrame, dict[str, Any]]]:
    """The rows of each series with its look; `names`: those that stand in several frames alike."""
    for number, name in enumerate(names or rows["series"].unique(maintain_order=True)):
        colour, marker = SERIES[number % len(SERIES)]
        stroke = _STROKES[number // len(SERIES) % len(_STROKES)]
        look = {"label": name, "color": colour, "marker": marker, "linestyle": stroke}
        yield rows.filter(series=name), look


def curves(
    axes: "Axes",
    rows: pl.DataFrame,
    x: str,
    y: str,
    *,
    ends: tuple[str, str] | None = None,
    names: Sequence[str] = (),
    **style: Any,
) -> None:
    """A line for each series (column `series`) in the order of `x`, with a band between `ends`."""
    for mine, look in series(rows, names):
        points = mine.sort(x)
        unmarked = {"marker": ""} if points.height > _MOST_MARKED else {}
        if points.height:
            axes.plot(points[x], points[y], **look | unmarked | style)
        if ends is not None:
            low, high = (points[end].fill_null(points[y]) for end in ends)
            axes.fill_between(points[x], low, high, color=look["color"], alpha=0.15, linewidth=0)

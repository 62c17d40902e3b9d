"""An empty figure, its series, and the types of figures: Matplotlib is loaded here, when drawn."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any  # loading it takes half a second

__all__ = ["SERIES", "Axes", "Figure", "canvas", "series"]


def canvas(width: float, height: float) -> "Figure":
    """A figure of that size in inches, whose parts give each other room."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def series(rows: pl.DataFrame, column: str) -> Iterator[tuple[str, pl.DataFrame, str, str]]:
    """Each series of a figure: its name, rows, colour and marker."""
    for number, name in enumerate(rows[column].unique(maintain_order=True)):
        yield name, rows.filter(pl.col(column) == name), *SERIES[number % len(SERIES)]


# Okabe and Ito's colours, which colour-blind readers tell apart; each with a marker of its own.
SERIES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
)

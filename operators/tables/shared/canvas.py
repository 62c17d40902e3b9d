"""An empty figure: where Matplotlib is loaded, since that takes half a second."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def canvas(width: float, height: float) -> "Figure":
    """A figure of that size in inches, whose parts give each other room."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")

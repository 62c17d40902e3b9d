"""How knowledge grows with a model's size: a line over the logarithm of its parameters.

Source: "Factual Knowledge Assessment of Language Models Using Distractors", Figure 8, appendix E.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """value = intercept + slope · log10(parameters), and R² of the fit."""

    intercept: float
    slope: float
    r_squared: float

    def reaches(self, value: float) -> float | None:
        """The log10 of the parameters at which the line reaches a value; null: it does not rise."""
        return (value - self.intercept) / self.slope if self.slope > 0 else None


def log_linear(log10_parameters: Sequence[float], values: Sequence[float]) -> Line | None:
    """Fit the line by least squares; null with fewer than three sizes, two of which always fit.

    >>> line = log_linear([8.0, 9.0, 10.0], [0.5, 0.6, 0.7])
    >>> round(line.slope, 3), round(line.r_squared, 3), round(line.reaches(0.9), 3)
    (0.1, 1.0, 12.0)
    """
    if len(set(log10_parameters)) < 3:
        return None
    from scipy.stats import linregress

    found = linregress(log10_parameters, values)
    return Line(float(found.intercept), float(found.slope), float(found.rvalue**2))

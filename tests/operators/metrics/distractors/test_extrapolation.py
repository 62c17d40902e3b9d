"""The line over the logarithm of sizes, against numpy's least squares."""

import numpy as np
import pytest

from factsweep.operators.tables.distractors import log_linear


def test_line_is_the_least_squares_fit() -> None:
    sizes, values = [7.8, 8.6, 9.0, 9.4, 10.1], [0.41, 0.45, 0.5, 0.52, 0.55]
    line = log_linear(sizes, values)
    assert line is not None
    slope, intercept = np.polyfit(sizes, values, 1)
    assert (line.slope, line.intercept) == pytest.approx((slope, intercept))
    assert line.r_squared == pytest.approx(np.corrcoef(sizes, values)[0, 1] ** 2)
    reached = line.size_reaching(0.9)
    assert reached is not None
    assert intercept + slope * reached == pytest.approx(0.9)


def test_line_of_fewer_than_three_sizes_is_undefined() -> None:
    assert log_linear([8.0, 9.0, 9.0], [0.1, 0.2, 0.3]) is None


def test_line_that_falls_reaches_nothing() -> None:
    line = log_linear([7.0, 8.0, 9.0], [0.3, 0.2, 0.1])
    assert line is not None
    assert line.size_reaching(0.9) is None

"""Laws of a curve: a power law of the error, or a half-life; only where the runs agree with one.

A straight line through the logarithms by least squares: error = b · x^(−c) through log error and
log x, value = b · 2^(−x/h) through log2 value and x. Runs answer the same facts, so that their
values err together: the covariance is that over facts (of means, linearised), and that of the line
follows from it. A law holds where no run is off the line by more than Šidák's bound for all runs.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.metrics.comparing.pairing import FACT
from factsweep.operators.metrics.shared.bootstrap import FloatArray
from factsweep.operators.schemas import schema

POWER, HALF_LIFE = "error falls as a power", "half-life"
LAWS = schema("law text, value float, ci_low float, ci_high float, n_runs int, furthest float")
_LEVEL = 0.95
_FEWEST = 4  # runs; a line goes through any two
_NONE = 1e-9  # what rounding, which differs from CPU to CPU, leaves of a difference of 0


class _Line(NamedTuple):
    """A slope, its standard error, and how many of its own errors the furthest point is off."""

    slope: float
    error: float
    furthest: float


def laws(terms: pl.DataFrame, at: dict[str, float]) -> pl.DataFrame:
    """The laws that runs at those places agree with (columns: LAWS); mostly none, or one.

    `terms` as in `along`; facts that a run lacks are left out. `value` is c, or h in the unit of
    the axis. Without a row: fewer than four runs, a value of 0 or 1, a run that is certainly off
    the line, or a slope that may be none or goes the other way.
    """
    from scipy.stats import norm

    wide = terms.with_columns(share=pl.col("numerator") / pl.col("denominator"))
    wide = wide.pivot("label", index=list(FACT), values="share").drop_nulls()
    labels = [each for each in at if each in wide.columns]
    x, facts = np.array([at[each] for each in labels]), wide.select(labels).to_numpy()
    values, covariance = facts.mean(0), np.cov(facts, rowvar=False) / max(1, len(facts))
    if len(labels) < _FEWEST or not ((values > 0) & (values < 1)).all():
        return LAWS.to_frame()
    bound = float(norm.isf((1 - _LEVEL ** (1 / len(labels))) / 2))  # of all runs at once
    one = float(norm.isf((1 - _LEVEL) / 2))
    lines = {HALF_LIFE: _line(x, np.log2(values), covariance, 1 / (values * np.log(2)))}
    if (x > 0).all():
        power = _line(np.log(x), np.log(1 - values), covariance, -1 / (1 - values))
        lines = {POWER: power, **lines}
    found = []
    for law, line in lines.items():
        slopes = [line.slope + end * line.error for end in (-one, 0, one)]
        if line.furthest <= bound and slopes[-1] < 0:  # it certainly falls
            low, value, high = sorted(-s if law == POWER else -1 / s for s in slopes)
            found.append((law, value, low, high, len(labels), line.furthest))
    return pl.DataFrame(found, LAWS, orient="row")


def _line(x: FloatArray, y: FloatArray, covariance: FloatArray, slopes: FloatArray) -> _Line:
    """The line through points whose values have a covariance; `slopes` are dy/dvalue."""
    design = np.stack([np.ones_like(x), x], axis=1)
    fit = np.linalg.pinv(design)
    of_y = covariance * np.outer(slopes, slopes)
    rest = np.eye(len(x)) - design @ fit
    off, spread = np.abs(rest @ y), np.sqrt(np.diag(rest @ of_y @ rest.T).clip(0))
    far = np.divide(off, spread, out=np.where(off > _NONE, np.inf, 0.0), where=spread > 1e-12)
    slope, error = float(fit[1] @ y), np.sqrt(max(0.0, fit[1] @ of_y @ fit[1]))
    is_flat = abs(slope) * np.ptp(x) < _NONE
    return _Line(0.0 if is_flat else slope, float(error), float(far.max()))

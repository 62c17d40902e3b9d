"""Numbers of two full runs compared, where one or both are estimates from a part of the prompts.

An interval of an estimate is one of the full run's own number, which shrinks to nothing as all
prompts are asked. So is that of the difference: it says what the two full runs would differ by, and
nothing about other facts.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from factsweep.operators.metrics.comparing.verdict import WORST_FIRST, Verdict, direction, told
from factsweep.operators.schemas import schema

DIFFERENCES = schema(
    "metric text, first float, second float, difference float, ci_low float, ci_high float"
)


class Known(NamedTuple):
    """What is known of a full run's number: an estimate with its interval, or the number itself."""

    value: float
    low: float
    high: float


def difference(first: Known, second: Known) -> Known:
    """The second number less the first, with its 95 % interval.

    The two errors are taken for independent (MOVER: Zou and Donner 2008, equation 3, which needs
    no interval to be symmetric). Estimates that ask the same prompts err in the same direction,
    as far as prompts are hard for both: then the interval is too wide rather than too narrow.

    >>> difference(Known(0.5, 0.47, 0.54), Known(0.6, 0.6, 0.6))
    Known(value=0.1, low=0.06, high=0.13)
    """
    value = second.value - first.value
    below = math.hypot(second.value - second.low, first.high - first.value)
    above = math.hypot(second.high - second.value, first.value - first.low)
    return Known(*(round(each, 12) for each in (value, value - below, value + above)))


def differences(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The difference of each metric that both know: the table DIFFERENCES, in the first's order.

    Columns in: metric, value, full_low, full_high. What has no value or no interval in one of them
    has no difference.
    """
    names = ("value", "full_low", "full_high")
    both = first.join(second, on="metric", suffix="_other", maintain_order="left")
    rows = []
    columns = ("metric", *names, *(f"{name}_other" for name in names))
    for metric, *known in both.select(columns).iter_rows():
        one, other = known[:3], known[3:]
        found = (None,) * 3 if None in known else difference(Known(*one), Known(*other))
        rows.append((metric, one[0], other[0], *found))
    return pl.DataFrame(rows, schema=DIFFERENCES, orient="row")


def judged(rows: pl.DataFrame, metrics: Sequence[str], margin: float) -> Verdict:
    """The verdict on two full runs by the metrics that decide; columns in: DIFFERENCES.

    A regression or an improvement is a whole interval beyond the margin, and no change a whole
    interval within it, of each metric. All else is not enough evidence: a larger budget gives more.
    """
    known = {row["metric"]: row for row in rows.iter_rows(named=True)}
    found = [_judged(metric, known.get(metric), margin) for metric in metrics]
    return min(found, key=lambda each: WORST_FIRST.index(each.outcome))


def _judged(metric: str, row: dict[str, float | None] | None, margin: float) -> Verdict:
    names = ("difference", "ci_low", "ci_high")
    number, low, high = (None,) * 3 if row is None else (row[name] for name in names)
    if number is None or low is None or high is None:
        return Verdict("not enough evidence", f"{metric} has no estimate with an interval in both.")
    seen = told(f"{metric} of all prompts of these facts", number, low, high)
    if low > margin or high < -margin:
        why = f"all of which exceeds the {margin:.4g} threshold"
        return Verdict(direction(metric, number), f"{seen}, {why}.")
    if max(-low, high) <= margin:
        return Verdict("no change", f"{seen}, within the ±{margin:.4g} tolerance.")
    why = f"and the interval is not on one side of the {margin:.4g} threshold; a larger budget may"
    return Verdict("not enough evidence", f"{seen}, {why} tell.")

"""The verdict on two runs: a regression, an improvement, no change, or not enough evidence.

A regression or an improvement is a difference that exceeds the threshold, that chance does not
explain, and that is larger than what decoding again changes. No change is an interval within the
tolerance. All else is not enough evidence, whatever the difference.

Where one or both runs are estimates from a part of the prompts, an interval is one of the full
run's own number, which shrinks to nothing as all prompts are asked. So is that of the difference:
it says what the two full runs would differ by, and nothing about other facts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.paired import METRICS, PREFERENCES
from factsweep.operators.metrics.shared.metric import higher_is_better
from factsweep.operators.schemas import schema

# What is said of several is the first of these that is said of any.
Outcome = Literal["regression", "not enough evidence", "improvement", "no change"]

WORST_FIRST: tuple[Outcome, ...] = get_args(Outcome)
VERDICTS = schema("metric text, relation_id text, verdict text, reason text")
DIFFERENCES = schema(
    "metric text, first float, second float, difference float, ci_low float, ci_high float"
)
HIGHER_IS_BETTER = higher_is_better((*METRICS, *PREFERENCES))
_N_NAMED = 3


@dataclass(frozen=True)
class Bar:
    """What a difference must pass to count.

    `noise_floor` is the flip rate of the canary, `smallest_difference` the threshold (both in the
    metric's unit, 0 to 1); `margin` is the larger one. `alpha` is the level of the tests. Fewer
    than `min_facts` never show that nothing changed: the interval of a few facts that did not
    change has no width.

    Raises:
        InputError: one of them is out of its range.
    """

    noise_floor: float
    smallest_difference: float
    alpha: float
    min_facts: int

    def __post_init__(self) -> None:
        if not 0 <= self.noise_floor <= 1:
            raise InputError(f"noise_floor is {self.noise_floor}; give a flip rate from 0 to 1.")
        if not 0 < self.smallest_difference <= 1:
            raise InputError(
                f"smallest_difference is {self.smallest_difference}; give one above 0, up to 1."
            )
        if not 0 < self.alpha < 1:
            raise InputError(f"alpha is {self.alpha}; give a level between 0 and 1.")

    @property
    def margin(self) -> float:
        """The smallest difference that counts."""
        return max(self.noise_floor, self.smallest_difference)


class Verdict(NamedTuple):
    """What is said of two runs, and the sentence that says why."""

    outcome: Outcome
    reason: str


def verdict(comparison: pl.DataFrame, bar: Bar) -> Verdict:
    """Judge two runs by all rows of a comparison (columns: COMPARISON) that are to decide.

    Any regression, over all or in a relation, makes a regression: a gain in one relation does not
    make up for a loss in another. Else any improvement makes an improvement; else it is no change
    if that is so of every metric over all.

    Raises:
        InputError: a metric has no better direction.
    """
    found = verdicts(comparison, bar).sort("relation_id", maintain_order=True)
    for outcome in WORST_FIRST[::2]:  # a regression, then an improvement
        if reasons := found.filter(verdict=outcome)["reason"].to_list():
            more = [f"And {len(reasons) - _N_NAMED} more."] * (len(reasons) > _N_NAMED)
            return Verdict(outcome, " ".join(reasons[:_N_NAMED] + more))
    overall = found.filter(pl.col("relation_id").is_null())
    unsure = overall.filter(verdict="not enough evidence")["reason"].to_list()
    if overall.is_empty():
        unsure = ["The runs have no prompt in common."]
    if unsure:
        return Verdict("not enough evidence", unsure[0])
    return Verdict("no change", " ".join(overall["reason"][:_N_NAMED]))


def verdicts(comparison: pl.DataFrame, bar: Bar) -> pl.DataFrame:
    """Judge each row of a comparison (columns: COMPARISON) by itself: the table VERDICTS.

    With the difference d and m = `bar.margin`, it is

    - regression: |d| ≥ m, d and its whole interval lie on the worse side of 0, and p_holm ≤ alpha
      (where there is a test);
    - improvement: the same on the better side;
    - no change: |d| < m, the interval lies within −m to m, and there are `bar.min_facts` facts;
    - not enough evidence: all others, also what has no value or interval.

    Raises:
        InputError: a metric has no better direction.
    """
    rows = []
    for row in comparison.iter_rows(named=True):
        metric, relation = row["metric"], row["relation_id"]
        if metric not in HIGHER_IS_BETTER:
            raise InputError(
                f"{metric} has no better direction; leave its rows out of the verdict."
            )
        where = f"{metric} {'over all' if relation is None else f'in {relation}'}"
        found = Verdict("not enough evidence", f"{where} has no value and interval in both runs.")
        if None not in (row["difference"], row["ci_low"], row["ci_high"]):
            found = _judged(row, where, bar)
        rows.append((metric, relation, *found))
    return pl.DataFrame(rows, schema=VERDICTS, orient="row")


def _judged(row: Mapping[str, Any], where: str, bar: Bar) -> Verdict:
    difference, low, high, p = (row[n] for n in ("difference", "ci_low", "ci_high", "p_holm"))
    margin, seen = bar.margin, _told(where, difference, low, high)
    matters, within = abs(difference) >= margin, max(-low, high) <= margin
    one_sided = min(difference * low, difference * high) > 0
    if matters and one_sided and (p is None or p <= bar.alpha):
        why = f"which exceeds the {margin:.4g} threshold"
        return Verdict(_direction(row["metric"], difference), f"{seen}, {why}.")
    if not matters and within and row["n_pairs"] >= bar.min_facts:
        return Verdict("no change", f"{seen}, within the ±{margin:.4g} tolerance.")
    if matters and not one_sided:
        why = "and the interval contains 0"
    elif matters:
        why = f"but p is {p:.4f} after Holm's correction, above {bar.alpha:g}"
    elif not within:
        why = f"and the interval reaches beyond the ±{margin:.4g} tolerance"
    else:
        why = f"but {row['n_pairs']} facts are fewer than min_facts={bar.min_facts}"
    return Verdict("not enough evidence", f"{seen}, {why}.")


def _direction(metric: str, difference: float) -> Outcome:
    return "improvement" if (difference > 0) == HIGHER_IS_BETTER[metric] else "regression"


def _told(where: str, difference: float, low: float, high: float) -> str:
    """A difference with its interval, in words."""
    interval = f"(95 % interval {low:z.4f} to {high:z.4f})"
    if not difference:
        return f"{where} did not change {interval}"
    return f"{where} {'rose' if difference > 0 else 'fell'} by {abs(difference):.4f} {interval}"


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
    found = [_judged_full(metric, known.get(metric), margin) for metric in metrics]
    return min(found, key=lambda verdict: WORST_FIRST.index(verdict.outcome))


def _judged_full(metric: str, row: dict[str, float | None] | None, margin: float) -> Verdict:
    names = ("difference", "ci_low", "ci_high")
    number, low, high = (None,) * 3 if row is None else (row[name] for name in names)
    if number is None or low is None or high is None:
        return Verdict("not enough evidence", f"{metric} has no estimate with an interval in both.")
    seen = _told(f"{metric} of all prompts of these facts", number, low, high)
    if low > margin or high < -margin:
        why = f"all of which exceeds the {margin:.4g} threshold"
        return Verdict(_direction(metric, number), f"{seen}, {why}.")
    if max(-low, high) <= margin:
        return Verdict("no change", f"{seen}, within the ±{margin:.4g} tolerance.")
    why = f"and the interval is not on one side of the {margin:.4g} threshold; a larger budget may"
    return Verdict("not enough evidence", f"{seen}, {why} tell.")

"""The verdict on two runs: the second is higher, lower or no different, or evidence is lacking.

A run is higher or lower if the difference exceeds the threshold, chance does not explain it, and it
is larger than what decoding again changes. No difference is an interval within the tolerance. All
else is not enough evidence, whatever the difference. Where the first run is a declared baseline,
the verdict is a regression, an improvement or no change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.paired import METRICS, PREFERENCES
from factsweep.operators.metrics.shared.rows import higher_is_better
from factsweep.operators.schemas import schema

# The verdict on several settings is the first of these that any of them has.
AgainstBaseline = Literal["regression", "not enough evidence", "improvement", "no change"]
Side = Literal["higher", "lower", "higher and lower"]
Outcome = AgainstBaseline | Side | Literal["no difference"]

WORST_FIRST: tuple[AgainstBaseline, ...] = get_args(AgainstBaseline)
SIDES: tuple[Side, ...] = get_args(Side)
VERDICTS = schema("metric text, relation_id text, verdict text, reason text")
HIGHER_IS_BETTER = higher_is_better((*METRICS, *PREFERENCES))
_N_NAMED = 3


@dataclass(frozen=True)
class VerdictThresholds:
    """The thresholds that a difference must pass to count.

    `noise_floor` is the flip rate of the canary, `smallest_difference` the threshold (both in the
    metric's unit, 0 to 1); `margin` is the larger one. `alpha` is the level of the tests. Fewer
    than `min_facts` never show that nothing changed: their interval may have no width. The first
    run `is_baseline` if the second is to be no worse; else the two are peers.

    Raises:
        InputError: one of them is out of its range.
    """

    noise_floor: float
    smallest_difference: float
    alpha: float
    min_facts: int
    is_baseline: bool = False

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
    """The verdict on two runs, and the sentence that gives the reason."""

    outcome: Outcome
    reason: str


def judge_runs(comparison: pl.DataFrame, thresholds: VerdictThresholds) -> Verdict:
    """Judge two runs by all rows of a comparison (columns: COMPARISON) that are to decide.

    Against a baseline, any regression, over all or in a relation, makes a regression: a gain in one
    relation does not make up for a loss in another. Else any improvement makes an improvement. A
    peer is higher or lower over all, or else in relations. Else there is no difference (no change)
    if every metric over all is unchanged.

    Raises:
        InputError: a metric has no better direction.
    """
    rows = judge_rows(comparison, thresholds).sort("relation_id", maintain_order=True)
    overall = rows.filter(pl.col("relation_id").is_null())
    if thresholds.is_baseline:
        for outcome in WORST_FIRST[::2]:  # a regression, then an improvement
            if reasons := rows.filter(verdict=outcome)["reason"].to_list():
                return Verdict(outcome, _join(reasons))
    else:
        for part in (overall, rows):
            decided = part.filter(pl.col("verdict").is_in(SIDES))
            if sides := set(decided["verdict"]):
                side: Side = "higher and lower" if len(sides) > 1 else decided["verdict"][0]
                decided = rows.filter(pl.col("verdict").is_in(SIDES))
                return Verdict(side, _join(decided["reason"].to_list()))
    unsure_reasons = overall.filter(verdict="not enough evidence")["reason"].to_list()
    if overall.is_empty():
        unsure_reasons = ["The runs have no prompt in common."]
    if unsure_reasons:
        return Verdict("not enough evidence", unsure_reasons[0])
    return Verdict(_unchanged_outcome(thresholds), " ".join(overall["reason"][:_N_NAMED]))


def _join(reasons: Sequence[str]) -> str:
    """The first reasons, and the number of others."""
    n_further = len(reasons) - _N_NAMED
    return " ".join([*reasons[:_N_NAMED], *[f"And {n_further} more."] * (n_further > 0)])


def judge_rows(comparison: pl.DataFrame, thresholds: VerdictThresholds) -> pl.DataFrame:
    """Judge each row of a comparison (columns: COMPARISON) by itself: the table VERDICTS.

    With the difference d and m = `thresholds.margin`, it is

    - lower: |d| ≥ m, d and its whole interval lie below 0, and p ≤ alpha (where there is a test):
      `p` of the main metric over all, which is not adjusted, and `p_holm` of all other rows;
    - higher: the same above 0;
    - no difference: |d| < m, the interval lies within −m to m, and there are enough facts;
    - not enough evidence: all others, also a missing value or interval.

    Against a baseline, the worse side is a regression, the better one an improvement, and no
    difference is no change.

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
        place = f"{metric} {'over all' if relation is None else f'in {relation}'}"
        judgement = Verdict(
            "not enough evidence", f"{place} has no value and interval in both runs."
        )
        if None not in (row["difference"], row["ci_low"], row["ci_high"]):
            judgement = _judge_row(row, place, thresholds)
        rows.append((metric, relation, *judgement))
    return pl.DataFrame(rows, schema=VERDICTS, orient="row")


def _judge_row(row: Mapping[str, Any], place: str, thresholds: VerdictThresholds) -> Verdict:
    difference, low, high = (row[name] for name in ("difference", "ci_low", "ci_high"))
    is_adjusted = row["p_holm"] is not None
    p = row["p_holm" if is_adjusted else "p"]
    margin, sentence = thresholds.margin, _describe(place, difference, low, high, thresholds)
    is_large, is_within_margin = abs(difference) >= margin, max(-low, high) <= margin
    excludes_zero = min(difference * low, difference * high) > 0
    if is_large and excludes_zero and (p is None or p <= thresholds.alpha):
        reason = f"which exceeds the {margin:.4g} threshold"
        return Verdict(_direction(row["metric"], difference, thresholds), f"{sentence}, {reason}.")
    if not is_large and is_within_margin and row["n_pairs"] >= thresholds.min_facts:
        return Verdict(
            _unchanged_outcome(thresholds), f"{sentence}, within the ±{margin:.4g} tolerance."
        )
    if is_large and not excludes_zero:
        reason = "and the interval contains 0"
    elif is_large:
        correction = " after Holm's correction" * is_adjusted
        reason = f"but p is {p:.4f}{correction}, above {thresholds.alpha:g}"
    elif not is_within_margin:
        reason = f"and the interval reaches beyond the ±{margin:.4g} tolerance"
    else:
        reason = f"but {row['n_pairs']} facts are fewer than min_facts={thresholds.min_facts}"
    return Verdict("not enough evidence", f"{sentence}, {reason}.")


def _direction(metric: str, difference: float, thresholds: VerdictThresholds) -> Outcome:
    if not thresholds.is_baseline:
        return "higher" if difference > 0 else "lower"
    return "improvement" if (difference > 0) == HIGHER_IS_BETTER[metric] else "regression"


def _unchanged_outcome(thresholds: VerdictThresholds) -> Outcome:
    return "no change" if thresholds.is_baseline else "no difference"


def _describe(
    place: str, difference: float, low: float, high: float, thresholds: VerdictThresholds
) -> str:
    interval = f"(95 % interval {low:z.4f} to {high:z.4f})"
    verbs = ("fell", "rose") if thresholds.is_baseline else ("is lower", "is higher")
    if not difference:
        return f"{place} {'did not change' if thresholds.is_baseline else 'is the same'} {interval}"
    return f"{place} {verbs[difference > 0]} by {abs(difference):.4f} {interval}"

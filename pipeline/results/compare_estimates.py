"""compare, where one of two runs has asked a part of its prompts, or both: marked as estimates.

What is compared are the numbers that the two full runs would give, as far as the estimates tell.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import Paired, Report
from factsweep.operators.metrics.comparing.verdict import differences, judged
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.tables import estimates as tables
from factsweep.pipeline.results import estimates, past
from factsweep.pipeline.results.compare import (
    Compared,
    Comparison,
    Pair,
    flip_rate,
    matching,
    paired,
    setting_of,
)
from factsweep.pipeline.results.past import PastBranch


@dataclass(frozen=True)
class _Side:
    """A setting of a run: its numbers (metric, value, full_low, full_high) and their mark."""

    branch: PastBranch
    rows: pl.DataFrame
    mark: str | None


def concerns(first: str, second: str, results: str) -> bool:
    """Whether one of two, each named as RUN or RUN:SETTING, is an estimate."""
    return any(estimates.is_estimate(results, each.partition(":")[0]) for each in (first, second))


def compared(
    first: str, second: str, results: str, given: Comparison, *, anyway: bool
) -> Iterator[Compared]:
    """Compare two runs of which one is an estimate, or both.

    Raises:
        InputError: there is nothing to pair, or two differ in more than the model and how they were
            asked, and not `anyway`.
    """
    ours, theirs = (setting_of(each, partial(_sides, results)) for each in (first, second))
    for one, other in matching((first, ours), (second, theirs)):
        pair = paired(one.branch, other.branch, anyway=anyway)
        yield _compared(pair, one, other, given)


@single_threaded_blas()
def _compared(pair: Pair, one: _Side, other: _Side, given: Comparison) -> Compared:
    found = _paired(one, other, differences(one.rows, other.rows))
    if found.is_empty():
        raise InputError(f"{one.branch.run} and {other.branch.run} have no metric in common.")
    main = pair.first.how.measure.main_metric
    noise = max(flip_rate(each.branch) or 0.0 for each in (one, other))
    verdict = judged(found, given.decides or (main,), max(noise, given.smallest_difference))
    marked = list(zip(pair.names, (one.mark, other.mark), strict=True))
    names = tuple(f"{name} ({mark})" if mark else name for name, mark in marked)
    written = {"headline": tables.compared(found, names[0], names[1])}
    told = [f"{name} is an {mark}" for name, mark in marked if mark]
    sentence = f"{'; '.join(told)}. Differences are those of full runs on these facts."
    report = Report(written, raw={"comparison": found})
    return Compared(pair, sentence, report, verdict, is_estimate=True)


def _paired(one: _Side, other: _Side, found: pl.DataFrame) -> pl.DataFrame:
    """The differences; of means that two estimates have of the same prompts, prompt by prompt."""
    pairing = _pairing(one, other)
    if pairing is None:
        return found
    first, second = (estimates.matched_answers(each.branch) for each in (one, other))
    crossed = one.branch.artifacts["chosen"].read("crossed", "all")
    rows = pairing(crossed, first, second)
    # A number that has no estimate has no difference.
    known = rows.join(found.drop_nulls("difference"), on="metric", how="semi")
    return found.update(known, on="metric")


def _pairing(one: _Side, other: _Side) -> Paired | None:
    """How two estimates are paired by prompts; null: they asked others, or have a control."""
    chosen = [each.branch.artifacts.get("chosen") for each in (one, other)]
    if None in chosen or len({each.folder for each in chosen if each}) > 1:
        return None
    if any(each.rows["control"].count() for each in (one, other)):
        return None
    sampling = one.branch.how.measure.sampling
    return None if sampling is None else sampling.paired


def _sides(results: str, run: str) -> Mapping[str, _Side]:
    if not estimates.is_estimate(results, run):
        return {title: _whole(each) for title, each in past.by_title(results, run).items()}
    part = estimates.read(results, run)
    return {
        title: _Side(each, part.of(title), part.mark(title))
        for title, each in part.branches.items()
    }


def _whole(branch: PastBranch) -> _Side:
    rows = branch.metrics.read_all("metrics")
    variant = pl.lit(branch.metrics.recipe.fields["variant"], pl.String)
    rows = rows.filter(pl.col("slice").is_null(), pl.col("variant").eq_missing(variant))
    known = rows.select("metric", "value", full_low="value", full_high="value")
    return _Side(branch, known, None)

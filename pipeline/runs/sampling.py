"""decoding.samples.until: block after block of samples, until an interval over facts is narrow."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from factsweep.operators.estimates.intervals import wider_side
from factsweep.pipeline.config.budget import Target, parse_target
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan


class SampleLook(NamedTuple):
    """A look at a run's samples: whether every setting's interval is narrow enough, in words."""

    is_met: bool
    sentences: tuple[str, ...]


def plan_looks(plan: Plan) -> Iterator[Plan]:
    """The plans of one block of samples, of two, and so on up to the plan itself."""
    run, samples = plan.run, plan.run.decoding.samples
    for n_answers in range(samples.block_size, samples.n_answers, samples.block_size):
        fewer = replace(samples, n_answers=n_answers)
        yield build_plan(replace(run, decoding=replace(run.decoding, samples=fewer)))
    yield plan


def read_look(plan: Plan) -> SampleLook:
    """Compare the intervals of a plan's metrics with the target of its samples."""
    run = plan.run
    samples, names = run.decoding.samples, run.method.measure.of_samples
    goal = parse_target(str(samples.until), names, "decoding.samples.until")
    half_widths, sentences = [], []
    for branch in plan.branches:
        source = f"{samples.n_answers} samples of each prompt"
        half_width, sentence = _read_interval(branch, goal, source)
        half_widths.append(half_width)
        sentences.append(f"{branch.title}: {sentence}.")
    is_met = all(width is not None and width <= goal.half_width for width in half_widths)
    return SampleLook(is_met, tuple(sentences))


def _read_interval(branch: Branch, goal: Target, source: str) -> tuple[float | None, str]:
    """Half the interval of the target's metric, and a sentence; null without an interval."""
    is_own = pl.col("variant").eq_missing(pl.lit(branch.setting.variant, pl.String))
    rows = branch.metrics.read_all("metrics").filter(
        pl.col("slice").is_null(), is_own, pl.col("metric") == goal.metric
    )
    numbers = rows.select("value", "ci_low", "ci_high").drop_nulls()
    if numbers.is_empty():
        return None, f"{goal.metric} has no interval from {source}"
    value, low, high = numbers.row(0)
    half_width = wider_side(value, low, high)
    return half_width, goal.describe(value, half_width, source)

"""decoding.samples.until: block after block of samples, until an interval over facts is narrow."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from factsweep.operators.estimates.intervals import wider_side
from factsweep.pipeline.config.budget import parse_target
from factsweep.pipeline.stages.plan import Plan, build_plan


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
    samples, names = plan.run.decoding.samples, plan.run.method.measure.of_samples
    goal = parse_target(str(samples.until), names, "decoding.samples.until")
    source = f"{samples.n_answers} samples of each prompt"
    half_widths, sentences = list[float](), list[str]()
    for branch in plan.branches:
        rows = branch.metrics.read_all("metrics").filter(
            pl.col("slice").is_null(),
            pl.col("variant").eq_missing(pl.lit(branch.setting.variant, pl.String)),
            pl.col("metric") == goal.metric,
        )
        sentence = f"{goal.metric} has no interval from {source}"
        for value, low, high in rows.select("value", "ci_low", "ci_high").drop_nulls().rows():
            half_widths.append(wider_side(value, low, high))
            sentence = goal.describe(value, half_widths[-1], source)
        sentences.append(f"{branch.title}: {sentence}.")
    is_met = len(half_widths) == len(plan.branches) and max(half_widths) <= goal.half_width
    return SampleLook(is_met, tuple(sentences))

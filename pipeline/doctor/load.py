"""The engine as the sweep would start it: how long that takes, how fast and alike it answers."""

import resource
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.errors import DecodingError
from factsweep.pipeline.config.settings import Run
from factsweep.pipeline.costs import calibration
from factsweep.pipeline.doctor import allreduce, gpus
from factsweep.pipeline.doctor.finding import Finding
from factsweep.pipeline.execution import cluster
from factsweep.pipeline.execution import engine as engines
from factsweep.pipeline.execution.plan import planned, settled
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.asking.question import Task

_GROUP = "load"
_PROMPTS = 200
_MOST_FLIPS = 0.05  # of greedy answers: more is not a machine's rounding alone


class Turn(NamedTuple):
    """The answers of a turn by prompt, and what they took."""

    rows: Mapping[str, Mapping[str, Any]]
    seconds: float
    prompt_tokens: float
    cached_tokens: float


def checks(run: Run) -> Iterator[Finding]:
    """Load the engine where the sweep would, ask some of its prompts, and ask them again.

    With model.engine.load_format=dummy no weights are needed: the answers are then noise, and the
    times are those of the real model.
    """
    import ray

    run = settled(run)
    with cluster.started(run):
        look = ray.remote(max_retries=0, **cluster.where_an_engine_goes(run))(looked_at)
        yield from ray.get(look.remote(run))


def looked_at(run: Run) -> list[Finding]:
    """The findings of an engine that is loaded in this process.

    Raises:
        DecodingError: it answers nothing.
    """
    together = list(allreduce.checks(run))  # before the engine takes the GPUs
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(replace(run, artifacts=folder))
        for step in plan.branches[0].sources():
            step.run()
        job = next(calibration.jobs(plan))
        rows = pl.concat(job.parts).head(_PROMPTS)
        began = time.monotonic()
        engine, tokenizer = engines.load(run, plan.weights), models.tokenizer(plan.weights)
        took = time.monotonic() - began
        first, second = (_turn(job.task, rows, engine, tokenizer) for _ in range(2))
    if not first.rows:
        raise DecodingError(f"{run.model.name} answers none of {rows.height} prompts.")
    return [*together, *_told(run, took, first, second)]


def _turn(task: Task, rows: pl.DataFrame, engine: Any, tokenizer: Any) -> Turn:
    began, found, tokens = time.monotonic(), {}, [0.0, 0.0]
    for answered in task.answered(rows, engine, tokenizer):
        for place, name in enumerate(("prompt_tokens", "cached_tokens")):
            tokens[place] += answered.counts[name]
        if answered.error is None:
            found[answered.row["prompt_id"]] = answered.row
    return Turn(found, time.monotonic() - began, *tokens)


def _told(run: Run, took: float, first: Turn, second: Turn) -> Iterator[Finding]:
    limit = run.cluster.start_s
    slow = f"a sweep waits cluster.start_s={limit:g} s for its first engine; raise it"
    yield Finding.of(_GROUP, "start", f"{took:,.0f} s", warns=slow if took > limit / 2 else "")
    cached = first.cached_tokens / max(1.0, first.prompt_tokens)
    rate = len(first.rows) / first.seconds
    yield Finding.of(
        _GROUP, "rate", f"{len(first.rows):,} prompts, {rate:,.1f}/s, {cached:.0%} of tokens cached"
    )
    differ = [key for key, row in first.rows.items() if second.rows.get(key) != row]
    flips = len(differ) / len(first.rows)
    fix = "greedy answers should hardly differ; try decoding.determinism=batch_invariant"
    told = f"{flips:.1%} of the answers differ when asked again"
    yield Finding.of(_GROUP, "asked twice", told, warns=fix if flips > _MOST_FLIPS else "")
    shown = [repr(row["text"]) for row in islice(first.rows.values(), 3) if "text" in row]
    if shown:
        yield Finding.of(_GROUP, "first answers", ", ".join(shown))
    used = sum(each.used_mib for each in gpus.seen()[0])
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    on_gpus = f", {used:,} MiB on GPUs" if used else ""
    yield Finding.of(_GROUP, "memory", f"{held:,.1f} GB of this process{on_gpus}")

"""The engine as the sweep would start it: how long that takes, how fast and alike it answers."""

import re
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.errors import DecodingError, FactsweepError
from factsweep.pipeline.cluster import machine
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.machine import Finding
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import cause, rates
from factsweep.pipeline.decoding import engine as engines
from factsweep.pipeline.decoding.idle import Clocked
from factsweep.pipeline.decoding.spent import SPENT
from factsweep.pipeline.decoding.watchdog import Watchdog
from factsweep.pipeline.inputs import models
from factsweep.pipeline.runs import calibration
from factsweep.pipeline.stages.plan import settled
from factsweep.pipeline.stages.question import Task
from factsweep.pipeline.storage.store import Store

_PROMPTS = 200
_MOST_FLIPS = 0.05  # of greedy answers: more is not a machine's rounding alone
# What vLLM prints of its start: its weights, what it compiles, its graphs, its cache.
_PHASE = re.compile(
    r"(Loading weights|torch\.compile|Graph capturing|init engine)\b"
    r".*?(?:took|finished in) ([\d.]+) (?:s|secs|seconds)\b"
)


class Turn(NamedTuple):
    """The answers of a turn by prompt, what they count, and what they took: s, and to the first."""

    rows: Mapping[str, Mapping[str, Any]]
    counts: Mapping[str, float]
    seconds: float
    first_s: float  # to the first answer
    idle_s: float  # in which the engine had nothing to answer

    @property
    def texts(self) -> dict[str, str]:
        """The answers that are texts."""
        return {key: row["text"] for key, row in self.rows.items() if "text" in row}


class Phases(NamedTuple):
    """What a start takes in seconds: until weights are found whole, then until they are loaded."""

    checked_s: float
    loaded_s: float
    said: Mapping[str, float]  # by the engine, of the second


class Looked(NamedTuple):
    """What an engine was found to do, and its rate as spent."""

    findings: list[Finding]
    spent: pl.DataFrame


def checks(run: Run) -> Iterator[Finding]:
    """Load the engine where the sweep would, ask some of its prompts, and ask them again.

    With model.engine.load_format=dummy no weights are needed: the answers are then noise, and the
    times are those of the real model. With real weights the rate is kept, for `plan`.
    """
    run = settled(run)
    with cluster.started(run):
        looked: Looked = _where_an_engine_goes(looked_at, run, _PROMPTS)
        yield from looked.findings
        if run.model.arguments.get("load_format") != "dummy":
            rates.keep(Store(str(home())), looked.spent, "doctor --load")


def _where_an_engine_goes(look: Callable[..., Any], run: Run, *more: Any) -> Any:
    import ray

    task = ray.remote(max_retries=0, **cluster.where_an_engine_goes(run))(look)
    try:
        return ray.get(task.remote(run, *more))
    except ray.exceptions.RayTaskError as error:  # whose text is a traceback
        raise cause.of_task(error) from None


def looked_at(run: Run, n_prompts: int = _PROMPTS) -> Looked:
    """What is found of an engine that is loaded in this process.

    Raises:
        DecodingError: it answers nothing.
    """
    with calibration.prepared(run) as plan:
        job = next(calibration.jobs(plan))
        rows = pl.concat(job.parts).head(n_prompts)
        engine, tokenizer, phases = _loaded(run, plan.weights)
        first, second = (_turn(job.task, rows, engine, tokenizer) for _ in range(2))
    if not first.rows:
        raise DecodingError(f"{run.model.name} answers none of {rows.height} prompts.")
    spent = [calibration.row(plan, job, first.counts, first.seconds)]
    told = [_start(run, phases, first), *_told(first, second)]
    return Looked(told, pl.DataFrame(spent, schema=SPENT))


def _loaded(run: Run, weights: models.Weights) -> tuple[Any, Any, Phases]:
    """The engine, its tokenizer, and what its start took; what it prints is read from its log."""
    printed = Path("/proc/self/fd/1")
    before = printed.stat().st_size if printed.is_file() else 0
    began = time.monotonic()
    models.verify(weights)
    checked = time.monotonic()
    try:
        with Watchdog().on_guard(run.cluster.start_s):  # as a sweep ends one that never loads
            engine, tokenizer = engines.load(run, weights), models.tokenizer(weights)
    except FactsweepError:
        raise
    except Exception as error:
        why = cause.of_error(error, cause.own_log())
        raise DecodingError(f"The engine of {run.model.name} does not start: {why}.") from error
    loaded = time.monotonic()
    text = printed.read_bytes()[before:].decode(errors="replace") if printed.is_file() else ""
    said = {name: float(seconds) for name, seconds in _PHASE.findall(text)}
    return engine, tokenizer, Phases(checked - began, loaded - checked, said)


def _turn(task: Task, rows: pl.DataFrame, engine: Any, tokenizer: Any) -> Turn:
    began, first_s = time.monotonic(), 0.0
    found, counts, clocked = {}, Counter[str](), Clocked(engine)
    for answered in task.answered([rows], clocked, tokenizer):
        first_s = first_s or time.monotonic() - began
        counts.update(answered.counts)
        if answered.error is None:
            found[answered.row["prompt_id"]] = answered.row
    return Turn(found, counts, time.monotonic() - began, first_s, clocked.used().idle_seconds)


def _start(run: Run, phases: Phases, first: Turn) -> Finding:
    limit, took = run.cluster.start_s, phases.checked_s + phases.loaded_s
    said = ", ".join(f"{name} {seconds:,.1f}" for name, seconds in phases.said.items())
    told = (
        f"{took:,.0f} s: weights found whole {phases.checked_s:,.1f}, engine loaded "
        f"{phases.loaded_s:,.1f} ({said or 'its log tells no phases'}), then first answer "
        f"{first.first_s:,.1f}"
    )
    slow = f"a sweep waits cluster.start_s={limit:g} s for its first engine; raise it"
    return Finding.of("start", told, warns=slow if took > limit / 2 else "")


def _told(first: Turn, second: Turn) -> Iterator[Finding]:
    cached = first.counts["cached_tokens"] / max(1.0, first.counts["prompt_tokens"])
    rate = len(first.rows) / first.seconds
    idle = f"the engine waited {first.idle_s / first.seconds:.0%} of the time"
    told = f"{len(first.rows):,} prompts, {rate:,.1f}/s, {cached:.0%} of tokens cached; {idle}"
    yield Finding.of("rate", told)
    differ = [key for key, row in first.rows.items() if second.rows.get(key) != row]
    flips = len(differ) / len(first.rows)
    fix = "greedy answers should hardly differ; try decoding.determinism=batch_invariant"
    told = f"{flips:.1%} of the answers differ when asked again"
    yield Finding.of("asked twice", told, warns=fix if flips > _MOST_FLIPS else "")
    shown = [repr(text) for text in islice(first.texts.values(), 3)]
    if shown:
        yield Finding.of("first answers", ", ".join(shown))
    used = sum(each.used_mib for each in machine.seen()[0])
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    on_gpus = f", {used:,} MiB on GPUs" if used else ""
    yield Finding.of("memory", f"{held:,.1f} GB of this process{on_gpus}")

"""Checks of the engine and the model: weights, speed, and repeatability of answers."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.engines.protocol import NOT_INSTALLED
from factsweep.operators.errors import DecodingError, FactsweepError, reason
from factsweep.operators.wording import count, name_servers
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import check_build, check_weights
from factsweep.pipeline.cluster.machine_checks import Finding
from factsweep.pipeline.config import model_metadata
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.model_metadata import find_cached
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import costs, root_cause
from factsweep.pipeline.decoding import engine as engines
from factsweep.pipeline.decoding.costs import SPENT
from factsweep.pipeline.decoding.decoder import Watchdog
from factsweep.pipeline.decoding.engine import TimedEngine
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.runs import calibration
from factsweep.pipeline.runs.preflight import check_servers
from factsweep.pipeline.stages.plan import resolve_run
from factsweep.pipeline.stages.question import Task, check_reading
from factsweep.pipeline.storage.store import Store

_PROMPTS = 200
_MOST_FLIPS = 0.05  # of greedy answers: more is not a machine's rounding alone


class DecodingTurn(NamedTuple):
    """The answers of a turn by prompt, their counts, and the time."""

    rows: Mapping[str, Mapping[str, Any]]
    counts: Mapping[str, float]
    seconds: float
    idle_s: float  # while the engine had no prompts


def check_model(run: Run) -> Iterator[Finding]:
    """The checks of a run before it loads anything, and its data."""
    yield from check_node(run)
    yield _try_check("data", lambda: _describe_data(run), run.benchmark.data)
    yield _check_tokens(run)


def check_node(run: Run) -> Iterator[Finding]:
    """The requirements of every node that may load the engine, or match its answers."""
    engine = run.engine
    version = engine.version()
    lacks = engine.install if version == NOT_INSTALLED else ""
    yield Finding.of("engine", f"{engine.name}, {version}", fails=lacks)
    yield _try_check("device", lambda: check_build(run), f"{run.cluster.device}")
    if len(run.model.urls) > 1:
        yield _try_check("servers", lambda: check_servers(run), name_servers(run.model.urls))
    switches = engine.switches(os.environ)
    text = ", ".join(f"{name}={value}" for name, value in switches.items()) or "none is set"
    fix = "they may change answers, and are part of the recipe; unset them unless they are meant"
    yield Finding.of("variables that change answers", text, warns=fix if switches else "")
    is_offline: list[bool] = []
    yield _try_check("weights", lambda: _describe_weights(run, is_offline), run.model.id)
    if run.model.source == "hub":
        yield _check_cache(run, offline=any(is_offline))
    # The normaliser of answers; spaCy's tables are read, as by matching.
    yield _try_check("words", lambda: _describe_normaliser(run), run.matching.pipeline)


def _describe_normaliser(run: Run) -> str:
    versions = run.method.measure.versions(run.matching.pipeline)
    return ", ".join(f"{name} {text[:12]}" for name, text in versions.items()) or "as they are"


def _describe_weights(run: Run, is_offline: list[bool]) -> str:
    """The weights in words; appends to `is_offline` whether only the cache has them."""
    model = models.resolve_dtype(run.model, run.cluster.device)
    weights = models.resolve(model)
    is_offline.append(weights.offline)
    cache = ", from the cache: the hub does not answer" if weights.offline else ""
    check_weights(run, model)
    scheme = model_metadata.scheme(run.model)
    return f"{run.model.id} at {weights.revision[:12]}{f', {scheme}' if scheme else ''}{cache}"


def _check_cache(run: Run, *, offline: bool = False) -> Finding:
    from huggingface_hub import constants

    model, folder = run.model, Path(constants.HF_HUB_CACHE)
    if find_cached(model.id, model.revision) is not None:
        return Finding.of("cache", f"the weights are in {folder}")
    if model.arguments.get("load_format") == "dummy":
        return Finding.of("cache", "no weights are needed: load_format=dummy")
    if offline:
        fix = f"run `factsweep prefetch model={model.name}` where the hub answers, into HF_HOME"
        return Finding.of("cache", f"not all weights are in {folder}", fails=fix)
    need = model_metadata.weights_gb(model)
    free = (Store(str(folder)).free() or 0) / 1e9
    text = f"about {need:,.1f} GB are to be fetched; {free:,.0f} GB are free in {folder}"
    fix = "free some, or set HF_HOME to a larger disk, which all nodes share"
    return Finding.of("cache", text, fails=fix if need > free else "")


def _describe_data(run: Run) -> str:
    entry = catalog.entry_of_benchmark(run.benchmark)
    files = catalog.list_files(entry, run.benchmark.path)
    return f"{run.benchmark.data}: {count(len(files), 'file')}"


def _check_tokens(run: Run) -> Finding:
    sentences: list[str] = []
    try:
        with calibration.prepare_plan(run) as plan:
            tokenizer = models.tokenizer(plan.weights)
            for _, question, prompts in calibration.first_prompts(plan):
                check_reading(question.task, tokenizer, prompts)
                sentences += question.task.warnings(tokenizer, prompts["text"][0])
    except FactsweepError as error:
        return Finding.of("tokens", "prompts", fails=str(error).removesuffix("."))
    warning = "; ".join(sentence.removesuffix(".") for sentence in dict.fromkeys(sentences))
    return Finding.of("tokens", "the first prompts read as their text", warns=warning)


def _try_check(check: str, look: Callable[[], str | None], default: str) -> Finding:
    try:
        return Finding.of(check, look() or default)
    except FactsweepError as error:
        return Finding.of(check, default, fails=str(error).removesuffix("."))
    except (OSError, ImportError) as error:
        return Finding.of(check, default, fails=reason(error))


def load_engine(run: Run) -> Iterator[Finding]:
    """Load the engine where the sweep would, and ask it some of its prompts twice.

    With model.engine.load_format=dummy no weights are needed: the answers are noise, and the times
    are those of the real model. With real weights the rate is kept, for `plan`.
    """
    import ray

    run = resolve_run(run)
    with cluster.start_ray(run):
        task = ray.remote(max_retries=0, **cluster.placement(run))(try_engine)
        try:
            findings, spent = ray.get(task.remote(run, _PROMPTS))
        except ray.exceptions.RayTaskError as error:  # whose text is a traceback
            raise root_cause.find_task_error(error) from None
        yield from findings
        if run.model.arguments.get("load_format") != "dummy":
            costs.write_rates(Store(str(home())), spent, "doctor --load")


def try_engine(run: Run, n_prompts: int = _PROMPTS) -> tuple[list[Finding], pl.DataFrame]:
    """The findings on an engine that is loaded in this process, and its rate as a row of costs."""
    with calibration.prepare_plan(run) as plan:
        job = next(calibration.list_jobs(plan))
        rows = pl.concat(job.parts).head(n_prompts)
        started_at = time.monotonic()
        models.verify(plan.weights)
        try:
            with Watchdog().on_guard(run.cluster.start_s):  # as in a sweep
                engine, tokenizer = engines.load(run, plan.weights), models.tokenizer(plan.weights)
        except FactsweepError:
            raise
        except Exception as error:
            problem = root_cause.find_cause(error, root_cause.find_own_log())
            raise DecodingError(
                f"The engine of {run.model.name} does not start: {problem}."
            ) from error
        start_s = time.monotonic() - started_at
        first, second = (_decode_turn(job.task, rows, engine, tokenizer) for _ in range(2))
    if not first.rows:
        raise DecodingError(f"{run.model.name} answers none of {rows.height} prompts.")
    spent = [calibration.build_cost_row(plan, job, first.counts, first.seconds)]
    slow = f"a sweep waits cluster.start_s={run.cluster.start_s:g} s for its first engine; raise it"
    warns = slow if start_s > run.cluster.start_s / 2 else ""
    start = Finding.of("start", f"{start_s:,.0f} s until the engine was loaded", warns=warns)
    return [start, *_compare_turns(first, second)], pl.DataFrame(spent, schema=SPENT)


def _decode_turn(task: Task, rows: pl.DataFrame, engine: Any, tokenizer: Any) -> DecodingTurn:
    answers, counts, clocked = {}, Counter[str](), TimedEngine(engine)
    started_at = time.monotonic()
    for answered in task.answer_groups([rows], clocked, tokenizer):
        counts.update(answered.counts)
        if answered.error is None:
            answers[answered.row["prompt_id"]] = answered.row
    seconds = time.monotonic() - started_at
    return DecodingTurn(answers, counts, seconds, clocked.take_usage().idle_seconds)


def _compare_turns(first: DecodingTurn, second: DecodingTurn) -> Iterator[Finding]:
    cached_share = first.counts["cached_tokens"] / max(1.0, first.counts["prompt_tokens"])
    rate = len(first.rows) / first.seconds
    idle = f"the engine waited {first.idle_s / first.seconds:.0%} of the time"
    text = (
        f"{len(first.rows):,} prompts, {rate:,.1f}/s, {cached_share:.0%} of tokens cached; {idle}"
    )
    yield Finding.of("rate", text)
    n_different = sum(second.rows.get(key) != row for key, row in first.rows.items())
    flips = n_different / len(first.rows)
    fix = "greedy answers should hardly differ; try decoding.determinism=batch_invariant"
    text = f"{flips:.1%} of the answers differ when asked again"
    yield Finding.of("asked twice", text, warns=fix if flips > _MOST_FLIPS else "")
    texts = [repr(row["text"]) for row in islice(first.rows.values(), 3) if "text" in row]
    if texts:
        yield Finding.of("first answers", ", ".join(texts))

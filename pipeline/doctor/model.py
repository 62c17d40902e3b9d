"""The engine and the model: what is installed, what is set, and whether the weights can be had."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from factsweep.operators.engines.kind import NOT_INSTALLED
from factsweep.operators.errors import FactsweepError, reason
from factsweep.operators.wording import count
from factsweep.pipeline.cluster.hardware import check_build, check_weights
from factsweep.pipeline.cluster.machine import Finding
from factsweep.pipeline.config import described
from factsweep.pipeline.config.described import cached
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.runs import calibration
from factsweep.pipeline.stages.question import check_reading
from factsweep.pipeline.storage.store import Store


def checks(run: Run) -> Iterator[Finding]:
    """What a run looks for before it loads anything, and what its facts are read from."""
    yield from of_node(run)
    yield _sentence("data", lambda: _data(run), run.benchmark.data)
    yield _tokens(run)


def of_node(run: Run) -> Iterator[Finding]:
    """What every node needs that may load the engine, or match its answers."""
    engine = run.engine
    version = engine.version()
    lacks = engine.install if version == NOT_INSTALLED else ""
    yield Finding.of("engine", f"{engine.name}, {version}", fails=lacks)
    yield _sentence("device", lambda: check_build(run), f"{run.cluster.device}")
    switches = engine.switches(os.environ)
    told = ", ".join(f"{name}={value}" for name, value in switches.items()) or "none is set"
    fix = "they may change answers, and are part of the recipe; unset them unless they are meant"
    yield Finding.of("variables that change answers", told, warns=fix if switches else "")
    offline: list[bool] = []
    yield _sentence("weights", lambda: _weights(run, offline), run.model.id)
    if run.model.source == "hub":
        yield _cache(run, offline=any(offline))
    # What answers are normalised by; spaCy's tables are read, as matching will.
    words = run.method.measure.versions
    yield _sentence("words", lambda: _told(words(run.matching.pipeline)), run.matching.pipeline)


def _weights(run: Run, offline: list[bool]) -> str:
    """Which weights there are; notes whether the hub said so, or the cache."""
    model = models.settled(run.model, run.cluster.device)
    found = models.resolve(model)
    offline.append(found.offline)
    cache = ", from the cache: the hub does not answer" if found.offline else ""
    check_weights(run, model)
    scheme = described.scheme(run.model)
    return f"{run.model.id} at {found.revision[:12]}{f', {scheme}' if scheme else ''}{cache}"


def _cache(run: Run, *, offline: bool = False) -> Finding:
    """Whether the weights are on this machine; if not, whether they can be fetched to it."""
    from huggingface_hub import constants

    model, folder = run.model, Path(constants.HF_HUB_CACHE)
    if cached(model.id, model.revision) is not None:
        return Finding.of("cache", f"the weights are in {folder}")
    if model.arguments.get("load_format") == "dummy":
        return Finding.of("cache", "no weights are needed: load_format=dummy")
    if offline:
        fix = f"run `factsweep prefetch model={model.name}` where the hub answers, into HF_HOME"
        return Finding.of("cache", f"not all weights are in {folder}", fails=fix)
    need = described.weights_gb(model)
    free = (Store(str(folder)).free() or 0) / 1e9
    told = f"about {need:,.1f} GB are to be fetched; {free:,.0f} GB are free in {folder}"
    fix = "free some, or set HF_HOME to a larger disk, which all nodes share"
    return Finding.of("cache", told, fails=fix if need > free else "")


def _told(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {each[:12]}" for name, each in versions.items()) or "as they are"


def _data(run: Run) -> str:
    entry = catalog.of_benchmark(run.benchmark)
    files = catalog.files(entry, run.benchmark.path)
    return f"{run.benchmark.data}: {count(len(files), 'file')}"


def _tokens(run: Run) -> Finding:
    """Whether the model would read the prompts of each setting's first relation as their text."""
    sentences: list[str] = []
    try:
        with calibration.prepared(run) as plan:
            tokenizer = models.tokenizer(plan.weights)
            for _, question, prompts in calibration.first_prompts(plan):
                check_reading(question.task, tokenizer, prompts)
                sentences += question.task.warnings(tokenizer, prompts["text"][0])
    except FactsweepError as error:
        return Finding.of("tokens", "prompts", fails=str(error).removesuffix("."))
    warning = "; ".join(sentence.removesuffix(".") for sentence in dict.fromkeys(sentences))
    return Finding.of("tokens", "the first prompts read as their text", warns=warning)


def _sentence(check: str, look: Callable[[], str | None], what: str) -> Finding:
    """What a run would refuse with, found before it does."""
    try:
        return Finding.of(check, look() or what)
    except FactsweepError as error:
        return Finding.of(check, what, fails=str(error).removesuffix("."))
    except (OSError, ImportError) as error:
        return Finding.of(check, what, fails=reason(error))

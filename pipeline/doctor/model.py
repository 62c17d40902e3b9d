"""The engine and the model: what is installed, what is set, and whether the weights can be had."""

import os
from collections.abc import Callable, Iterator

from factsweep.operators.engines.kind import NOT_INSTALLED
from factsweep.operators.errors import FactsweepError, reason
from factsweep.pipeline.config.settings import Run
from factsweep.pipeline.doctor.finding import Finding
from factsweep.pipeline.execution.cluster import check_build
from factsweep.pipeline.inputs import catalog, models

_GROUP = "engine, model and data"


def checks(run: Run) -> Iterator[Finding]:
    """What a run looks for before it loads anything, and what its facts are read from."""
    engine = run.engine
    version = engine.version()
    lacks = engine.install if version == NOT_INSTALLED else ""
    yield Finding.of(_GROUP, "engine", f"{engine.name}, {version}", fails=lacks)
    yield _sentence("device", lambda: check_build(run), f"{run.cluster.device}")
    switches = engine.switches(os.environ)
    told = ", ".join(f"{name}={value}" for name, value in switches.items()) or "none is set"
    fix = "they may change answers, and are part of the recipe; unset them unless they are meant"
    yield Finding.of(_GROUP, "variables that change answers", told, warns=fix if switches else "")
    yield _sentence("weights", lambda: _weights(run), run.model.id)
    yield _sentence("data", lambda: _data(run), run.benchmark.data)


def _weights(run: Run) -> str:
    found = models.resolve(models.settled(run.model, run.cluster.device))
    offline = ", from the cache: the hub does not answer" if found.offline else ""
    return f"{run.model.id} at {found.revision[:12]}{offline}"


def _data(run: Run) -> str:
    files = catalog.files(catalog.entry(run.benchmark.data), run.benchmark.path)
    return f"{run.benchmark.data}: {len(files)} files"


def _sentence(check: str, look: Callable[[], str | None], what: str) -> Finding:
    """What a run would refuse with, found before it does."""
    try:
        return Finding.of(_GROUP, check, look() or what)
    except FactsweepError as error:
        return Finding.of(_GROUP, check, what, fails=str(error).removesuffix("."))
    except OSError as error:
        return Finding.of(_GROUP, check, what, fails=reason(error))

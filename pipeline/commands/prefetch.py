"""prefetch: what runs will need, brought once to a shared cache: models and data, at commits."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from factsweep.pipeline.config.benchmark import Benchmark
from factsweep.pipeline.config.compose import expanded
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog, hub, models
from factsweep.pipeline.inputs.hub import Fetched, Repository, Say


def prefetch(overrides: Sequence[str], say: Say) -> Iterator[str]:
    """Fetch or check the models and data of all runs that are described; yields lines.

    Raises:
        InputError: one of them is unknown, or the hub does not give it.
    """
    runs = [load(each.overrides) for each in expanded(overrides)]
    settled = [models.settled(run.model, run.cluster.device) for run in runs]
    sources = {replace(each, name="", billions_of_parameters=0.0): each for each in settled}
    for model in sources.values():
        yield _model(model, say)
    benchmarks = [run.benchmark for run in runs]
    for benchmark in {(each.data, each.path): each for each in benchmarks}.values():
        yield _data(benchmark, say)
    yield f"workers run offline with: {_environment()}"


def _model(model: Model, say: Say) -> str:
    if model.source == "hub":
        fetched = hub.fetch(Repository(model.id, model.revision, "model"), say)
        hub.own_files(model.id, fetched.commit)  # digests are kept: no GPU waits for them
        return _line("model", fetched)
    weights = models.resolve(model)
    return f"model {model.id}: at {weights.revision}, on this machine: {models.location(weights)}"


def _data(benchmark: Benchmark, say: Say) -> str:
    entry = catalog.of_benchmark(benchmark)
    if benchmark.path is None and entry.source.kind == "hub":
        return _line("data", catalog.fetched(entry, say))
    files = catalog.files(entry, benchmark.path)
    return f"data {entry.name}: {len(files)} files, on this machine: {files[0].parent}"


def _line(what: str, found: Fetched) -> str:
    size = f"{found.n_bytes / 1e9:,.2f} GB" if found.n_bytes > 1e8 else f"{found.n_bytes:,} bytes"
    return (
        f"{what} {found.id}: commit {found.commit}, {found.n_files} files, {size}, "
        f"checksums right: {found.folder}"
    )


def _environment() -> str:
    """Where the caches are, for workers that see the same folders under the same names."""
    from huggingface_hub import constants

    folders = {"HF_HUB_CACHE": constants.HF_HUB_CACHE, "FACTSWEEP_HOME": os.fspath(home())}
    return " ".join([*(f"{k}={v}" for k, v in folders.items()), "HF_HUB_OFFLINE=1"])

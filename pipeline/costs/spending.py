"""What the artifacts of a run took: time, hardware, tokens, room; whichever run made them."""

from collections import Counter
from math import ceil
from typing import Any

import polars as pl

from factsweep.operators.cost import SPENT
from factsweep.pipeline.execution.plan import Branch, Plan
from factsweep.pipeline.execution.step import took
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.shard import numbers

_ENOUGH = 32  # shards of an artifact, to know how fast its engines are
_UNIT = {
    "facts": "pairs",
    "knowledge-base": "entities",
}  # what a stage without an engine is counted in: prompts, but for this


def spent(plan: Plan) -> pl.DataFrame:
    """What each complete artifact of the plan took; columns: `operators.cost.SPENT`."""
    rows: dict[str, dict[str, Any]] = {}
    for branch in plan.branches:
        for artifact in branch.artifacts():
            if artifact.folder not in rows and artifact.is_complete():
                rows[artifact.folder] = _row(branch, artifact)
    return pl.DataFrame(list(rows.values()), schema=SPENT)


def spent_so_far(plan: Plan) -> pl.DataFrame:
    """What published shards of open artifacts took, some of those that an engine writes."""
    rows = [
        _of_engine(branch, artifact, most=_ENOUGH)
        for branch in plan.branches
        for artifact in branch.answered()
        if not artifact.is_complete() and artifact.published(artifact.stage)
    ]
    return pl.DataFrame(rows, schema=SPENT)


def _row(branch: Branch, artifact: Artifact) -> dict[str, Any]:
    tables = artifact.manifest().tables
    size = sum(shard.bytes for table in tables.values() for shard in table.values())
    decoded = artifact in branch.answered()
    row = _of_engine(branch, artifact) if decoded else _of_processor(branch, artifact)
    return {**row, "bytes": size}


def _of_engine(branch: Branch, artifact: Artifact, most: int | None = None) -> dict[str, Any]:
    shards = list(artifact.counts(artifact.stage, most).values())
    sums = Counter[str]()
    for counts in shards:
        sums.update(numbers(counts))
    if not sums["seconds"]:  # made elsewhere
        return _named(branch, artifact)
    machines = {counts.get("hardware") for counts in shards}
    tokens = ("prompts", "answers", "prompt_tokens", "cached_tokens", "output_tokens")
    return {
        **_named(branch, artifact),
        "model": shards[0].get("model"),
        "dtype": artifact.recipe.fields.get("model", {}).get("dtype"),  # none if made elsewhere
        "hardware": machines.pop() if len(machines) == 1 else None,
        "gpus": ceil(round(sums["gpu_seconds"] / sums["seconds"], 2)),  # engines may share one
        "cores": round(sums["core_seconds"] / sums["seconds"]),
        **{name: int(sums[name]) for name in tokens},
        "seconds": sums["seconds"],
        "core_seconds": sums["core_seconds"],
        "idle_seconds": sums.get("idle_seconds"),
        "cost": sums.get("cost"),
    }


def _of_processor(branch: Branch, artifact: Artifact) -> dict[str, Any]:
    unit = _UNIT.get(artifact.stage)
    counted, table = (artifact, unit) if unit else (branch.prompts, "prompts")
    n = sum(counted.rows(table).values()) if counted.is_complete() else None
    row = {**_named(branch, artifact), "prompts": None if unit else n, "answers": n, "gpus": 0}
    try:
        return {**row, **took(artifact)}
    except FileNotFoundError:  # made before costs were noted, or its process was killed
        return row


def _named(branch: Branch, artifact: Artifact) -> dict[str, Any]:
    """The artifact, and the setting that it is of; facts and what is known are of none."""
    sources = [step.artifact for step in branch.sources()]
    setting = None if artifact in sources else branch.title
    return {"fingerprint": artifact.fingerprint, "stage": artifact.stage, "setting": setting}


def from_csv(content: bytes) -> pl.DataFrame:
    """Rows of a CSV file; a column that it lacks is null."""
    rows = pl.read_csv(content, schema_overrides=SPENT)
    return pl.concat([pl.DataFrame(schema=SPENT), rows], how="diagonal")

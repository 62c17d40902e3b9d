"""What work took, and the rates that follow: here and elsewhere, for plans and hours.

data_catalog/rates.csv          what ships with factsweep: measured on the machines it names
<store>/rates/<run>.json        what the runs of a store measured: each adds a file, none is changed
$FACTSWEEP_HOME/rates/<…>.json  what `plan --calibrate` measured from this machine
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil
from typing import Any

import polars as pl

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.cluster.hardware import gpus_per_engine, hardware
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.budget import budget
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.spent import SPENT, Place, predict
from factsweep.pipeline.machine import processor
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.stages.plan import Branch, Plan, check_budget, planned
from factsweep.pipeline.stages.step import took
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.sealed import seal, unseal
from factsweep.pipeline.storage.shard import numbers
from factsweep.pipeline.storage.store import Store

_FOLDER = "rates"
_ENOUGH = 32  # shards of an artifact, to know how fast its engines are
# What a stage without an engine is counted in: prompts, but for these.
_UNIT = {"facts": "pairs", "knowledge-base": "entities"}


def known(plan: Plan) -> pl.DataFrame:
    """All that was measured, and what this run has measured so far; one row per artifact."""
    shipped = pl.read_csv((folders.CATALOG / "rates.csv").read_bytes(), schema_overrides=SPENT)
    kept = [*_kept(Store(str(home()))), *_kept(plan.store)]
    rows = pl.concat([spent_so_far(plan), *kept, shipped], how="diagonal")
    return rows.unique(["fingerprint", "hardware"], keep="first", maintain_order=True)


def _kept(store: Store) -> Iterator[pl.DataFrame]:
    for name in (f"{_FOLDER}/{each}" for each in store.names(_FOLDER)):
        try:
            rows = unseal(store.get(name), name, store.where(name), "; it is left out.")["rows"]
        except DamagedFileError as error:
            LOG.warning("%s", error)
            continue
        yield pl.DataFrame(rows, schema=SPENT)


def publish(plan: Plan) -> None:
    """Add what the run measured to what its store knows, unless that is known already."""
    rows = spent(plan).drop_nulls("hardware")
    if rows.height:
        keep(plan.store, rows, plan.run.name)


def keep(store: Store, rows: pl.DataFrame, source: str) -> None:
    """Publish what was measured, under the name of what it was measured on."""
    what = "\n".join(sorted(rows["fingerprint"]))
    name = f"{_FOLDER}/{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"
    if not store.exists(name):
        today = datetime.now(UTC).date().isoformat()
        when = {"date": today, "commit": commit(), "source": source}
        dated = rows.with_columns(pl.lit(value, pl.String).alias(n) for n, value in when.items())
        try:
            store.put(name, seal({"rows": dated.to_dicts()}, name))
        except DamagedFileError:
            LOG.warning("%s is no file: what the run measured is not kept.", store.where(name))


def predicted(plan: Plan, work: pl.DataFrame) -> pl.DataFrame:
    """What work takes, by what was measured, or by the rate that was given."""
    costs = predict(work, known(plan), place(plan.run))
    return _as_given(costs, plan.run) if plan.run.cluster.answers_per_s else costs


def _as_given(costs: pl.DataFrame, run: Run) -> pl.DataFrame:
    given, gpus = run.cluster.answers_per_s, gpus_per_engine(run)
    seconds = pl.col("answers") / given
    engine = pl.col("stage").is_in(list(run.method.ask.ability.tables))
    changed = {
        "seconds": seconds,
        "gpu_hours": seconds * gpus / 3600,
        "core_hours": seconds * hardware(run).cores / 3600,
        "basis": pl.lit(f"{given:g} answers/s of an engine, given"),
    }
    return costs.with_columns(
        pl.when(engine).then(value).otherwise(name).alias(name) for name, value in changed.items()
    )


def unknown(run: Run, stages: Sequence[str]) -> str:
    """That some stages were never measured, and what to do."""
    computed = f" in {run.model.computed_in}" if run.model.computed_in else ""
    return (
        f"{', '.join(stages)} of {run.model.name}{computed} were never measured on "
        f"{place(run).engine}; measure a minute of them with `factsweep plan … --calibrate`, or "
        "give cluster.answers_per_s=<of one replica>"
    )


def place(run: Run) -> Place:
    """Where a plan supposes that the run is: `cluster.hardware`, or else where this is asked."""
    dtype = run.model.computed_in
    if run.cluster.hardware is not None:
        gpus = run.model.tensor_parallel * run.model.pipeline_parallel
        return Place(run.cluster.hardware, gpus, None, processor.cpu(), dtype)
    here = hardware(run)
    return Place(here.name, here.gpus, here.cores, processor.cpu(), dtype)


def paid_for(run: Run) -> Run:
    """The run with the number of prompts of each setting that its budget's hours pay for.

    The hours are those of all settings together, from the first prompt on: what is answered
    already counts. Other budgets stay as they are.

    Raises:
        InputError: nothing is known of what an answer takes there.
    """
    if run.budget is None or budget(run.budget).hours is None:
        return run
    check_budget(run)
    of = budget(run.budget)
    hours = _hours_per_prompt(planned(run), str(of.unit))
    n = int((of.hours or 0.0) / hours)
    if n < 1:
        raise InputError(f"budget={run.budget} pays for no prompt; one takes {hours:.2g} hours.")
    LOG.info("budget=%s pays for %s prompts of each setting.", run.budget, f"{n:,}")
    return replace(run, budget=str(n))


def _hours_per_prompt(plan: Plan, unit: str) -> float:
    run = plan.run
    stage = run.method.ask.ability.answers
    titles = [branch.title for branch in plan.branches]
    work = pl.DataFrame({"stage": stage, "setting": titles, "model": run.model.name, "answers": 1})
    costs = predicted(plan, work)
    if costs["seconds"].null_count():
        raise InputError(f"budget={run.budget}: {unknown(run, [stage])}.")
    hours = float(costs[f"{unit.lower()}_hours"].sum())
    if not hours:
        other = "core-hours" if unit == "GPU" else "GPU-hours"
        raise InputError(f"budget={run.budget}: engines use no {unit}-hours here; give {other}.")
    return hours


def spent(plan: Plan) -> pl.DataFrame:
    """What each complete artifact of the plan took; columns: `pipeline.decoding.spent.SPENT`."""
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

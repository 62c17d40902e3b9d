"""What work took, and what work of the same kind will take: the costs of a run and of a plan.

Time is only ever predicted from the same hardware, and where an engine is at work, from the same
model in the same type of numbers. Nothing is scaled from one model to another.

data_catalog/rates.csv          what ships with factsweep: measured on the machines it names
<store>/rates/<run>.json        what the runs of a store measured: each adds a file, none is changed
$FACTSWEEP_HOME/rates/<…>.json  what `plan --calibrate` measured from this machine
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from typing import Any

import polars as pl

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.schemas import schema
from factsweep.operators.tables.shared.numbers import COUNT, HOURS, MEGABYTES, MONEY, percent
from factsweep.pipeline.cluster.hardware import gpus_per_engine, hardware
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.budget import budget
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import processor
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.stages.plan import Branch, Plan, check_budget, planned
from factsweep.pipeline.stages.step import took
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.shard import numbers
from factsweep.pipeline.storage.store import Store

_FOLDER = "rates"
_ENOUGH = 32  # shards of an artifact, to know how fast its engines are
# What a stage without an engine is counted in: prompts, but for these.
_UNIT = {"facts": "pairs", "knowledge-base": "entities"}


# One row per artifact. `answers` is what time and room grow with: answers of an engine, prompts of
# the other stages, pairs of the facts. Without a model the processor alone worked. Null: unknown.
SPENT: Mapping[str, pl.DataType] = schema("""
    fingerprint text, stage text, setting text, model text, dtype text, hardware text, gpus int,
    cores int, prompts int, answers int, prompt_tokens int, cached_tokens int, output_tokens int,
    seconds float, core_seconds float, idle_seconds float, cost float, bytes int, date text,
    commit text, source text
""")

# A stage without an engine needs some seconds however little it does: what it took for few answers
# says nothing of a hundred times as many, nor the other way round.
_FURTHEST = 100

# One row per stage and setting: what its answers would take. `basis` says where that was measured.
PREDICTED: Mapping[str, pl.DataType] = schema("""
    stage text, setting text, answers int, seconds float, gpu_hours float, core_hours float,
    bytes float, basis text
""")


@dataclass(frozen=True)
class Place:
    """Where work is to be done: an engine's hardware, and the processor of the other stages.

    `engine` is a part of the hardware's name, or all of it; an engine holds so many `gpus`, if it
    is on any; null cores match any number. The model computes in `dtype`, null where only a server
    knows it.
    """

    engine: str
    gpus: int
    cores: int | None
    cpu: str
    dtype: str | None


def known(plan: Plan) -> pl.DataFrame:
    """All that was measured, and what this run has measured so far; one row per artifact."""
    shipped = pl.read_csv((folders.CATALOG / "rates.csv").read_bytes(), schema_overrides=SPENT)
    kept = [*_kept(Store(str(home()))), *_kept(plan.store)]
    rows = pl.concat([spent_so_far(plan), *kept, shipped], how="diagonal")
    return rows.unique(["fingerprint", "hardware"], keep="first", maintain_order=True)


def _kept(store: Store) -> Iterator[pl.DataFrame]:
    for name in (f"{_FOLDER}/{each}" for each in store.names(_FOLDER)):
        try:
            rows = store.get_json(name, "rows", fix="; it is left out.")["rows"]
            yield pl.DataFrame(rows, schema=SPENT)
        except DamagedFileError as error:
            LOG.warning("%s", error)
        except (LookupError, TypeError, ValueError, pl.exceptions.PolarsError):
            LOG.warning("%s holds no rows of costs; it is left out.", store.where(name))


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
            store.put_json(name, {"rows": dated.to_dicts()})
        except DamagedFileError:
            LOG.warning("%s is no file: what the run measured is not kept.", store.where(name))


def predicted(plan: Plan, work: pl.DataFrame) -> pl.DataFrame:
    """What work takes, by what was measured, or by the rate that was given."""
    run, costs = plan.run, predict(work, known(plan), place(plan.run))
    if not (given := run.cluster.answers_per_s):
        return costs
    seconds = pl.col("answers") / given
    engine = pl.col("stage").is_in(list(run.method.ask.ability.tables))
    changed = {
        "seconds": seconds,
        "gpu_hours": seconds * gpus_per_engine(run) / 3600,
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
    """What each complete artifact of the plan took; columns: `pipeline.decoding.costs.SPENT`."""
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


def predict(work: pl.DataFrame, spent: pl.DataFrame, place: Place) -> pl.DataFrame:
    """What the work takes there, by what was spent on work of the same stage.

    `work` has stage, setting, model and answers. What was measured in the same setting is taken,
    or if there is none, in all others together. Unknown is null.
    """
    rows = [_predicted(each, spent, place) for each in work.iter_rows(named=True)]
    return pl.DataFrame(rows, schema=PREDICTED)


def _predicted(each: Mapping[str, Any], spent: pl.DataFrame, place: Place) -> dict[str, Any]:
    same = spent.filter(pl.col("stage") == each["stage"], pl.col("answers") > 0)
    sized, _ = _nearest(same.drop_nulls("bytes"), each["setting"])
    known = same.drop_nulls(["seconds", "hardware"]).filter(pl.col("seconds") > 0)
    fit = known.filter(_fits(each["model"], place))
    if each["model"] is None:
        size = pl.col("answers") / each["answers"]
        fit = fit.filter(size.is_between(1 / _FURTHEST, _FURTHEST))
    timed, elsewhere = _nearest(fit, each["setting"])
    found = {name: each[name] for name in ("stage", "setting", "answers")}
    if sized.height:
        found["bytes"] = each["answers"] * sized["bytes"].sum() / sized["answers"].sum()
    if timed.height:
        share = each["answers"] / timed["answers"].sum()
        gpu_seconds = (timed["gpus"] * timed["seconds"]).sum()
        found |= {
            "seconds": share * timed["seconds"].sum(),
            "gpu_hours": share * gpu_seconds / 3600,
            "core_hours": share * timed["core_seconds"].sum() / 3600,
            "basis": _basis(timed, each["model"]) + (", in other settings" if elsewhere else ""),
        }
    return found


def _fits(model: str | None, place: Place) -> pl.Expr:
    """Whether a row was measured on the same hardware, with the same model in the same type."""
    if model is None:
        return pl.col("model").is_null() & (pl.col("hardware") == place.cpu)
    named = pl.col("hardware").str.to_lowercase().str.contains(place.engine.lower(), literal=True)
    cores = True if place.cores is None else pl.col("cores") == place.cores
    same = (pl.col("model") == model) & pl.col("dtype").eq_missing(place.dtype)
    return named & same & pl.col("gpus").is_in([0, place.gpus]) & cores


def _nearest(rows: pl.DataFrame, setting: str | None) -> tuple[pl.DataFrame, bool]:
    """Those of the setting, or if there are none, all; and whether they are of others."""
    same = rows.filter(pl.col("setting").eq_missing(setting))
    return (same, False) if same.height else (rows, rows.height > 0)


def _basis(timed: pl.DataFrame, model: str | None) -> str:
    rate = float(timed["answers"].sum()) / float(timed["seconds"].sum())
    on = " and ".join(sorted(set(timed["hardware"])))
    if model is None:
        return f"{rate:,.0f}/s on {on}"
    computed = f" in {timed['dtype'][0]}" if timed["dtype"][0] is not None else ""
    return f"{rate:,.1f} answers/s of an engine{computed} on {on}"


_PERCENT = percent(1)
_COUNTS = ("prompts", "answers", "prompt_tokens", "output_tokens")
_SECONDS = ("seconds", "gpu_seconds", "core_seconds", "idle_seconds")


def cost_table(spent: pl.DataFrame) -> pl.DataFrame:
    """One row per stage and setting: prompts, tokens, hours and bytes.

    Columns in: `pipeline.decoding.costs.SPENT`. Hours are those of GPUs where there are any,
    else of cores; engine-hours count an engine once, however many of them it holds, and `idle` is
    the share of them in which an engine had nothing to answer. What a server charged is `spent`.
    """
    rows = spent.with_columns(gpu_seconds=pl.col("gpus") * pl.col("seconds"))
    charged = ["cost"] if "cost" in rows and rows["cost"].count() else []
    sums = (*_COUNTS, "cached_tokens", *_SECONDS, "bytes", *charged)
    # A sum of unknown parts is unknown.
    summed = (pl.when(pl.col(name).null_count() == 0).then(pl.sum(name)) for name in sums)
    table = rows.group_by("stage", "setting", maintain_order=True).agg(summed)
    engine = pl.col("prompt_tokens").is_not_null()
    hours = pl.when(pl.col("gpu_seconds") > 0).then("gpu_seconds").otherwise("core_seconds") / 3600
    return table.sort("setting", nulls_last=False, maintain_order=True).select(
        "setting",
        "stage",
        *(COUNT.column(pl.col(name)).alias(name.replace("_", " ")) for name in _COUNTS),
        _PERCENT.column(_finite(pl.col("cached_tokens") / pl.col("prompt_tokens"))).alias("cached"),
        *(MONEY.column(pl.col(name)).alias("spent") for name in charged),
        HOURS.column(pl.when(engine).then(pl.col("seconds") / 3600)).alias("engine-hours"),
        _PERCENT.column(_finite(pl.col("idle_seconds") / pl.col("seconds"))).alias("idle"),
        HOURS.column(pl.when(pl.col("gpu_seconds") > 0).then(hours)).alias("GPU-hours"),
        HOURS.column(pl.when(pl.col("core_seconds") > 0).then(hours)).alias("core-hours"),
        MEGABYTES.column(pl.col("bytes")).alias("MB"),
    )


def _finite(share: pl.Expr) -> pl.Expr:
    """The share; null where it was divided by 0."""
    return pl.when(share.is_finite()).then(share)

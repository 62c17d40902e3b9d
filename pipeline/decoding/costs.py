"""The costs of a run, and the predicted costs of a plan.

Time is predicted from the same hardware and, for engines, the same model and dtype. If these were
never measured, it is a wide range (`rough_rates.py`). Rates are in:

data_catalog/rates.csv          measured on the machines it names; ships with factsweep
<store>/rates/<run>.json        measured by the runs of a store, one file per run
$FACTSWEEP_HOME/rates/<…>.json  measured by `plan --calibrate`
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any

import polars as pl

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.matching.verdicts import JUDGE
from factsweep.operators.schemas import schema
from factsweep.operators.tables.shared.numbers import COUNT, HOURS, MEGABYTES, MONEY, percent
from factsweep.pipeline.cluster.hardware import gpus_per_engine, hardware
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.rough_rates import rough_seconds
from factsweep.pipeline.machine import processor
from factsweep.pipeline.machine.logs import LOG, may_fail
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.stages.plan import Branch, Plan, load_verdicts
from factsweep.pipeline.stages.step import read_cost
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lookup import open_artifact
from factsweep.pipeline.storage.shard import sum_counts
from factsweep.pipeline.storage.store import Store

_FOLDER = "rates"
_ENOUGH = 32  # shards of an open artifact, to measure its engines
# The table that is counted for stages without an engine; `prompts` for all others.
_UNIT = {"facts": "pairs", "knowledge-base": "entities"}


# One row per artifact. Time and size grow with `answers`: answers of an engine, prompts of the
# other stages, pairs of the facts. `model` is null for stages without an engine. `per_gpu` engines
# shared a GPU (null: it had one). Null: unknown.
SPENT: Mapping[str, pl.DataType] = schema("""
    fingerprint text, stage text, setting text, model text, dtype text, hardware text, gpus int,
    cores int, prompts int, answers int, prompt_tokens int, cached_tokens int, output_tokens int,
    seconds float, core_seconds float, idle_seconds float, cost float, bytes int, date text,
    commit text, source text, per_gpu int
""")

# Stages without an engine have a fixed start-up time, so a rate is used only within 100 times the
# size it was measured on.
_FURTHEST = 100

# One row per stage and setting: predicted costs; `basis` is the rate and where it was measured.
# Without a measured rate, `seconds` is null, and `least` and `most` are rough.
PREDICTED: Mapping[str, pl.DataType] = schema("""
    stage text, setting text, answers int, seconds float, gpu_hours float, core_hours float,
    bytes float, basis text, least float, most float
""")


@dataclass(frozen=True)
class PlanHardware:
    """The hardware of a plan: of its engines, and the processor of its other stages.

    `engine` is a part of the hardware's name; an engine has `gpus` GPUs or 0, and shares one with
    `per_gpu` - 1 others; null cores match any number; `dtype` is null for servers.
    """

    engine: str
    gpus: int
    cores: int | None
    cpu: str
    dtype: str | None
    per_gpu: int = 1


def load_rates(plan: Plan) -> pl.DataFrame:
    """All measured rates, with those of this run so far; one row per artifact."""
    shipped = load_shipped_rates().drop("billions")
    own_rows = [
        _engine_costs(branch, artifact, most=_ENOUGH)
        for branch in plan.branches
        for artifact in branch.list_outputs()
        if not artifact.is_complete() and artifact.list_published(artifact.stage)
    ]
    tables = [*_read_rates(Store(str(home()))), *_read_rates(plan.store)]
    rows = pl.concat([pl.DataFrame(own_rows, schema=SPENT), *tables, shipped], how="diagonal")
    return rows.unique(["fingerprint", "hardware"], keep="first", maintain_order=True)


def load_shipped_rates() -> pl.DataFrame:
    """The rates that ship with factsweep, with the billions of parameters of their models."""
    types = {**SPENT, "billions": pl.Float64()}
    return pl.read_csv((folders.CATALOG / "rates.csv").read_bytes(), schema_overrides=types)


def _read_rates(store: Store) -> Iterator[pl.DataFrame]:
    for file in store.names(_FOLDER):
        name = f"{_FOLDER}/{file}"
        try:
            rows = store.get_json(name, "rows", fix="; it is left out.")["rows"]
            yield pl.DataFrame(rows, schema=SPENT)
        except DamagedFileError as error:
            LOG.warning("%s", error)
        except (LookupError, TypeError, ValueError, pl.exceptions.PolarsError):
            LOG.warning("%s holds no rows of costs; it is left out.", store.where(name))


def publish_rates(plan: Plan) -> pl.DataFrame:
    """Keep the rates of a finished run in its store; returns its costs."""
    costs = collect_costs(plan)
    rows = costs.drop_nulls("hardware")
    if rows.height:
        with may_fail("its rates"):
            write_rates(plan.store, rows, plan.run.name)
    return costs


def write_rates(store: Store, rows: pl.DataFrame, source: str) -> None:
    """Publish rates once, under a name made of the fingerprints of their artifacts."""
    fingerprints = "\n".join(sorted(rows["fingerprint"]))
    name = f"{_FOLDER}/{hashlib.sha256(fingerprints.encode()).hexdigest()[:16]}.json"
    if not store.exists(name):
        today = datetime.now(UTC).date().isoformat()
        origin = {"date": today, "commit": commit(), "source": source}
        dated = rows.with_columns(pl.lit(value, pl.String).alias(n) for n, value in origin.items())
        store.put_json(name, {"rows": dated.to_dicts()})


def predict_costs(plan: Plan, work: pl.DataFrame) -> pl.DataFrame:
    """The predicted costs of work, by measured rates or by `cluster.answers_per_s`."""
    run, place = plan.run, resolve_place(plan.run)
    costs = _add_rough_ranges(run, place, predict(work, load_rates(plan), place))
    if not (rate := run.cluster.answers_per_s):
        return costs
    seconds = pl.col("answers") / rate
    of_engine = pl.col("stage").is_in(list(run.method.ask.ability.tables))
    values = {
        "seconds": seconds,
        "gpu_hours": seconds * gpus_per_engine(run) / place.per_gpu / 3600,
        "core_hours": seconds * hardware(run).cores / 3600,
        "basis": pl.lit(f"{rate:g} answers/s of an engine, given"),
    }
    return costs.with_columns(
        pl.when(of_engine).then(value).otherwise(name).alias(name) for name, value in values.items()
    )


def _add_rough_ranges(run: Run, place: PlanHardware, costs: pl.DataFrame) -> pl.DataFrame:
    billions, tables = run.model.billions_of_parameters, run.method.ask.ability.tables
    machine = place.engine, place.gpus, place.cores
    if billions is None or run.engine.hardware is not None:  # of a server, or of the fake engine
        return costs
    rows, shipped = [], load_shipped_rates()
    for row in costs.iter_rows(named=True):
        if row["seconds"] is None and row["stage"] in tables:
            rough = rough_seconds(shipped, row["stage"], billions, *machine)
            if rough is not None:
                ends = (rough.most, rough.least)
                slow, fast = (f"{float(f'{1 / seconds:.2g}'):,g}" for seconds in ends)
                row |= {
                    "least": rough.least * row["answers"],
                    "most": rough.most * row["answers"],
                    "basis": f"about {slow} to {fast} answers/s, scaled from {rough.source}",
                }
        rows.append(row)
    return pl.DataFrame(rows, schema=PREDICTED)


def describe_unmeasured(run: Run, stages: Sequence[str]) -> str:
    """A sentence: these stages were never measured, and the fix."""
    computed = f" in {run.model.computed_in}" if run.model.computed_in else ""
    engine = resolve_place(run).engine
    place = engine if engine != processor.UNKNOWN_GPU else "GPUs (cluster.hardware=H100 names them)"
    return (
        f"{', '.join(stages)} of {run.model.name}{computed} were never measured on {place}; "
        "measure a minute of them with `factsweep plan … --calibrate`, or give "
        "cluster.answers_per_s=<of one replica>"
    )


def resolve_place(run: Run) -> PlanHardware:
    """The hardware of a plan: `cluster.hardware`, the GPUs of Slurm, or else this machine."""
    dtype = run.model.computed_in
    name = run.cluster.hardware or getattr(run.cluster.launch, "gpu_type", None)
    if name is not None:
        gpus = run.model.tensor_parallel * run.model.pipeline_parallel
        per_gpu = run.model.replicas.per_gpu
        return PlanHardware(name, gpus, None, processor.cpu(), dtype, per_gpu)
    engine, cpu = hardware(run), processor.cpu()
    return PlanHardware(engine.name, engine.gpus, engine.cores, cpu, dtype, engine.per_gpu)


def collect_costs(plan: Plan) -> pl.DataFrame:
    """The costs of each complete artifact of the plan; columns: `pipeline.decoding.costs.SPENT`."""
    rows: dict[str, dict[str, Any]] = {}
    for branch in plan.branches:
        for artifact in branch.artifacts():
            if artifact.folder not in rows and artifact.is_complete():
                of_engine = artifact in branch.list_outputs()
                row = (_engine_costs if of_engine else _processor_costs)(branch, artifact)
                tables = artifact.manifest().tables.values()
                n_bytes = sum(shard.bytes for table in tables for shard in table.values())
                rows[artifact.folder] = {**row, "bytes": n_bytes}
    return pl.DataFrame(list(rows.values()), schema=SPENT)


def collect_judge_costs(plan: Plan) -> pl.DataFrame:
    """The costs of the replies of a run's judges (SPENT): the stage is the grader's name."""
    branch = plan.branches[0]
    rows = [
        {
            **_engine_costs(branch, open_artifact(plan.store, verdicts.answers)),
            "stage": f"{JUDGE}{verdicts.judge}",
            "setting": None,
        }
        for verdicts in load_verdicts(plan.run)
    ]
    return pl.DataFrame(rows, schema=SPENT)


def _engine_costs(branch: Branch, artifact: Artifact, most: int | None = None) -> dict[str, Any]:
    shards = list(artifact.counts(artifact.stage, most).values())
    sums = sum_counts(shards)
    if not sums["seconds"]:  # the answers were given
        return _describe_artifact(branch, artifact)
    machines = {counts.get("hardware") for counts in shards}
    tokens = ("prompts", "answers", "prompt_tokens", "cached_tokens", "output_tokens")
    return {
        **_describe_artifact(branch, artifact),
        "model": shards[0].get("model"),
        "dtype": artifact.recipe.fields.get("model", {}).get("dtype"),
        "hardware": machines.pop() if len(machines) == 1 else None,
        "gpus": ceil(round(sums["gpu_seconds"] / sums["seconds"], 2)),
        "per_gpu": _count_sharing(sums["gpu_seconds"], sums["seconds"]),
        "cores": round(sums["core_seconds"] / sums["seconds"]),
        **{name: int(sums[name]) for name in tokens},
        "seconds": sums["seconds"],
        "core_seconds": sums["core_seconds"],
        "idle_seconds": sums.get("idle_seconds"),
        "cost": sums.get("cost"),
    }


def _count_sharing(gpu_seconds: float, seconds: float) -> int | None:
    """The number of engines that shared a GPU; null: an engine had one to itself, or none.

    >>> _count_sharing(25.0, 100.0), _count_sharing(400.0, 100.0), _count_sharing(0.0, 100.0)
    (4, None, None)
    """
    n = round(seconds / gpu_seconds) if gpu_seconds else 1
    return n if n > 1 else None


def _processor_costs(branch: Branch, artifact: Artifact) -> dict[str, Any]:
    unit = _UNIT.get(artifact.stage)
    source, table = (artifact, unit) if unit else (branch.prompts, "prompts")
    n = sum(source.rows(table).values()) if source.is_complete() else None
    row = {
        **_describe_artifact(branch, artifact),
        "prompts": None if unit else n,
        "answers": n,
        "gpus": 0,
    }
    try:
        return {**row, **read_cost(artifact)}
    except FileNotFoundError:  # its process was killed
        return row


def _describe_artifact(branch: Branch, artifact: Artifact) -> dict[str, Any]:
    sources = [step.artifact for step in branch.sources()]  # shared by all settings
    setting = None if artifact in sources else branch.title
    return {"fingerprint": artifact.fingerprint, "stage": artifact.stage, "setting": setting}


def predict(work: pl.DataFrame, spent: pl.DataFrame, place: PlanHardware) -> pl.DataFrame:
    """The predicted costs of work (stage, setting, model, answers) on some hardware; null: unknown.

    They follow from the costs of the same stage in the same setting, or else in all others.
    """
    rows = [_predict_row(item, spent, place) for item in work.iter_rows(named=True)]
    return pl.DataFrame(rows, schema=PREDICTED)


def _predict_row(
    item: Mapping[str, Any], spent: pl.DataFrame, place: PlanHardware
) -> dict[str, Any]:
    model, n_answers = item["model"], item["answers"]
    stage = spent.filter(pl.col("stage") == item["stage"], pl.col("answers") > 0)
    sized, _ = _select_setting(stage.drop_nulls("bytes"), item["setting"])
    timed = stage.drop_nulls(["seconds", "hardware"]).filter(pl.col("seconds") > 0)
    if model is None:
        size = pl.col("answers") / n_answers
        timed = timed.filter(
            pl.col("model").is_null(),
            pl.col("hardware") == place.cpu,
            size.is_between(1 / _FURTHEST, _FURTHEST),
        )
    else:
        hardware_name = pl.col("hardware").str.to_lowercase()
        timed = timed.filter(
            hardware_name.str.contains(place.engine.lower(), literal=True),
            pl.col("model") == model,
            pl.col("dtype").eq_missing(place.dtype),
            pl.col("gpus").is_in([0, place.gpus]),
            pl.col("per_gpu").fill_null(1) == place.per_gpu,
            True if place.cores is None else pl.col("cores") == place.cores,
        )
    timed, is_elsewhere = _select_setting(timed, item["setting"])
    row = {name: item[name] for name in ("stage", "setting", "answers")}
    if sized.height:
        row["bytes"] = n_answers * sized["bytes"].sum() / sized["answers"].sum()
    if timed.height:
        rate = float(timed["answers"].sum()) / float(timed["seconds"].sum())
        dtype = "" if timed["dtype"][0] is None else f" in {timed['dtype'][0]}"
        speed = f"{rate:,.0f}/s" if model is None else f"{rate:,.1f} answers/s of an engine{dtype}"
        machines = " and ".join(sorted(set(timed["hardware"])))
        share = n_answers / timed["answers"].sum()
        row |= {
            "seconds": share * timed["seconds"].sum(),
            "gpu_hours": share * (timed["gpus"] * timed["seconds"]).sum() / place.per_gpu / 3600,
            "core_hours": share * timed["core_seconds"].sum() / 3600,
            "basis": f"{speed} on {machines}{', in other settings' if is_elsewhere else ''}",
        }
    return row


def _select_setting(rows: pl.DataFrame, setting: str | None) -> tuple[pl.DataFrame, bool]:
    """The rows of the setting, or if there are none, all; and whether these are of others."""
    in_setting = rows.filter(pl.col("setting").eq_missing(setting))
    return (in_setting, False) if in_setting.height else (rows, rows.height > 0)


_PERCENT = percent(1)
_COUNTS = ("prompts", "answers", "prompt_tokens", "output_tokens")
_SECONDS = ("seconds", "gpu_seconds", "core_seconds", "idle_seconds")


def cost_table(spent: pl.DataFrame) -> pl.DataFrame:
    """One row per stage and setting: prompts, tokens, hours and bytes, from rows of `SPENT`.

    Hours are those of GPUs if there are any, else of cores. `idle` is the share of engine-hours
    without a request under way; `spent` is the price of a server.
    """
    gpus = pl.col("gpus") / pl.col("per_gpu").fill_null(1)
    rows = spent.with_columns(gpu_seconds=gpus * pl.col("seconds"))
    cost = ["cost"] if "cost" in rows and rows["cost"].count() else []
    names = (*_COUNTS, "cached_tokens", *_SECONDS, "bytes", *cost)
    sums = (pl.when(pl.col(name).null_count() == 0).then(pl.sum(name)) for name in names)
    table = rows.group_by("stage", "setting", maintain_order=True).agg(sums)
    engine = pl.col("prompt_tokens").is_not_null()
    hours = pl.when(pl.col("gpu_seconds") > 0).then("gpu_seconds").otherwise("core_seconds") / 3600
    return table.sort("setting", maintain_order=True).select(
        "setting",
        "stage",
        *(COUNT.column(pl.col(name)).alias(name.replace("_", " ")) for name in _COUNTS),
        _share_column("cached_tokens", "prompt_tokens", "cached"),
        *(MONEY.column(pl.col(name)).alias("spent") for name in cost),
        HOURS.column(pl.when(engine).then(pl.col("seconds") / 3600)).alias("engine-hours"),
        _share_column("idle_seconds", "seconds", "idle"),
        HOURS.column(pl.when(pl.col("gpu_seconds") > 0).then(hours)).alias("GPU-hours"),
        HOURS.column(pl.when(pl.col("core_seconds") > 0).then(hours)).alias("core-hours"),
        MEGABYTES.column(pl.col("bytes")).alias("MB"),
    )


def _share_column(part: str, whole: str, name: str) -> pl.Expr:
    """A column's share of another as text; null where it is divided by 0."""
    share = pl.col(part) / pl.col(whole)
    return _PERCENT.column(pl.when(share.is_finite()).then(share)).alias(name)

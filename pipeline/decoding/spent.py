"""What stages took, and from it what work of the same kind would take.

Time is only ever predicted from the same hardware, and where an engine is at work, from the same
model in the same type of numbers. Nothing is scaled from one model to another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from factsweep.operators.schemas import schema
from factsweep.operators.tables.shared.numbers import COUNT, HOURS, MEGABYTES, MONEY, percent

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

    Columns in: `pipeline.decoding.spent.SPENT`. Hours are those of GPUs where there are any,
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

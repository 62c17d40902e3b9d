"""Rough seconds per answer of a model that was never measured on its hardware: a range.

The shipped rates are scaled by the parameters that a GPU or core holds, and by the GPU's speed.
No answer of a GPU takes less than the fastest measured one: engines spend that on scheduling.
"""

from typing import NamedTuple

import polars as pl

from factsweep.pipeline.config.model_metadata import GPUS, gpu_bytes, gpu_kind

_SPREAD = 2.0  # either way: other prompts, settings and versions
_FILLED = 0.8  # of a GPU's memory, by weights
_USUAL = "generations"


class Range(NamedTuple):
    """The least and the most seconds of an answer, and the rates that they were scaled from."""

    least: float
    most: float
    source: str


def rough_seconds(
    shipped: pl.DataFrame, stage: str, billions: float, hardware: str, gpus: int, cores: int | None
) -> Range | None:
    """The range of a stage on so many GPUs, or else on cores; null if nothing like it is shipped.

    `shipped` are rows of data_catalog/rates.csv: those of `pipeline.decoding.costs.SPENT`, with
    `billions` of parameters.
    """
    rows = shipped.drop_nulls(["model", "billions"]).filter(pl.col("answers") > 0)
    rows = rows.with_columns(answer_s=pl.col("seconds") / pl.col("answers"))
    on_cores = rows.filter(gpus=0)
    if gpus:
        speeds, usual = _relative_speeds(hardware, gpus, billions), rows.filter(pl.col("gpus") > 0)
        own_load, load = billions / gpus, pl.col("billions") / pl.col("gpus")
    else:
        speeds, usual, own_load, load = [1.0], on_cores, billions, pl.col("billions")
        if cores is not None:
            own_load, load = billions / cores, load / pl.col("cores")
    usual = usual.filter(stage=_USUAL).with_columns(load=load)
    if usual.is_empty() or not speeds:
        return None
    least = min(usual["answer_s"]) if max(usual["gpus"]) else 0.0
    # The largest model scales best: little of its time is spent on scheduling.
    largest = usual.filter(pl.col("load") == pl.col("load").max())
    times = [
        max(answer_s * own_load / rate_load / speed, least) * _relative_duration(on_cores, stage)
        for answer_s, rate_load in largest.select("answer_s", "load").iter_rows()
        for speed in speeds
    ]
    machines = " and ".join(sorted(set(largest["hardware"])))
    source = f"{largest['model'][0]} on {machines}"
    return Range(min(times) / _SPREAD, max(times) * _SPREAD, source)


def _relative_duration(on_cores: pl.DataFrame, stage: str) -> float:
    """How many times the seconds of a usual answer one of the stage takes; 1 if unknown."""
    means = (on_cores.filter(stage=name)["answer_s"].mean() for name in (stage, _USUAL))
    of_stage, usual = means
    return of_stage / usual if isinstance(of_stage, float) and isinstance(usual, float) else 1.0


def _relative_speeds(hardware: str, gpus: int, billions: float) -> list[float]:
    """The speeds of a GPU relative to an H200, by computation and by memory.

    An unknown GPU is any that holds its part of the model, where half as many would not.
    """
    kind, need = gpu_kind(hardware), 2e9 * billions / gpus / _FILLED
    kinds = [kind] if kind else [name for name in GPUS if need <= (gpu_bytes(name) or 0)]
    if kind is None and gpus > 1:
        kinds = [name for name in kinds if (gpu_bytes(name) or 0) < 2 * need] or kinds
    h200, ours = GPUS["H200"], map(GPUS.__getitem__, kinds)
    return [s for gpu in ours for s in (gpu.tflops / h200.tflops, gpu.bandwidth / h200.bandwidth)]

"""How long the engines of a study's runs will take: as measured, or else guessed from their size.

A guess only says in which order runs begin and how many engines each gets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import polars as pl

from factsweep.pipeline.config.run import Run
from factsweep.pipeline.costs import rates
from factsweep.pipeline.costs.forecast import forecast, work_left
from factsweep.pipeline.execution.hardware import gpus_per_engine
from factsweep.pipeline.execution.plan import Plan
from factsweep.pipeline.execution.work import branch_work
from factsweep.pipeline.stages.asking import remaining
from factsweep.pipeline.studies.packing import Job

_ANSWERS = {"stage": pl.String, "setting": pl.String, "answers": pl.Int64}
# Of one GPU for an answer of a model of a billion parameters: 8B on an H100 in vLLM's own figures
# answers some 400 short prompts a second.
_SECONDS = 0.0003
_BILLIONS = 7.0  # of a model that does not say
# From starting a process to its first answer: libraries and CUDA graphs, and a GB/s of weights.
_LOADS_S, _LOADS_S_PER_BILLION = 60.0, 2.0


class _Left(NamedTuple):
    """The answers that runs of the same prompts lack, by stage and setting, in how many shards."""

    answers: pl.DataFrame
    shards: int


@dataclass(frozen=True)
class _Work:
    """What a run lacks: answers, shards, and the seconds of one engine, if they are known."""

    run: Run
    answers: int
    shards: int
    seconds: float | None

    @property
    def size(self) -> float:
        """What its GPU seconds grow with."""
        return self.answers * _billions(self.run)


def jobs(plans: Mapping[str, Sequence[Plan]]) -> list[Job]:
    """What runs need, by name; the runs of a name share their engines, those of the first."""
    counted = dict[tuple[object, ...], _Left]()
    lacking = {name: [_work(plan, counted) for plan in own] for name, own in plans.items()}
    known = [
        each.seconds * _gpus(each.run) / each.size
        for own in lacking.values()
        for each in own
        if each.seconds and each.size
    ]
    scale = median(known) if known else _SECONDS
    return [_job(name, own, scale) for name, own in lacking.items()]


def _job(name: str, lacking: Sequence[_Work], scale: float) -> Job:
    run = lacking[0].run
    gpus, replicas = _gpus(run), run.model.replicas
    takes = [scale * one.size / gpus if one.seconds is None else one.seconds for one in lacking]
    shards = sum(each.shards for each in lacking)
    return Job(
        name,
        gpus,
        sum(takes),
        _LOADS_S + _LOADS_S_PER_BILLION * _billions(run),
        most=max(replicas.min, min(replicas.max, shards)),
        least=replicas.min,
        spans=run.model.pipeline_parallel > 1,
    )


def _work(plan: Plan, counted: dict[tuple[object, ...], _Left]) -> _Work:
    """What a run lacks; of prompts that no model was asked yet it is counted once for all."""
    ready = (e for b in plan.branches for e in (b.prompts, b.admitted, b.chosen) if e is not None)
    if all(each.is_complete() for each in ready):
        found = _listed(plan)
    else:
        key = (
            plan.run.budget,
            *(each.prompts.folder for each in plan.branches),
            *(each.stage for each in plan.answered),
        )
        if key not in counted:
            counted[key] = _expanded(plan)
        found = counted[key]
    rows = found.answers.with_columns(model=pl.lit(plan.run.model.name))
    seconds = rates.predicted(plan, rows)["seconds"]
    known = None if seconds.null_count() else float(seconds.sum())
    return _Work(plan.run, int(rows["answers"].sum()), found.shards, known)


def _listed(plan: Plan) -> _Left:
    """What a run lacks of prompts that are there."""
    items = [(each, item) for each in plan.branches for item in branch_work(plan.run, each)]
    left = remaining.left([item for _, item in items])
    rows = [
        (item.artifact.stage, branch.title, n * item.question.task.answers_per_prompt)
        for (branch, item), n in zip(items, left, strict=True)
    ]
    table = pl.DataFrame(rows, _ANSWERS, orient="row")
    summed = table.group_by("stage", "setting", maintain_order=True).sum()
    return _Left(summed.filter(pl.col("answers") > 0), sum(n > 0 for n in left))


def _expanded(plan: Plan) -> _Left:
    """What a run lacks of prompts that are yet to be written."""
    again, figures = forecast(plan.run, tokens=False)
    rows = work_left(again, figures).drop_nulls("model").select(list(_ANSWERS))
    return _Left(rows, sum(each.shards for each in figures))


def _gpus(run: Run) -> float:
    """The GPUs, or the part of one, that an engine holds."""
    return gpus_per_engine(run) / run.model.replicas.per_gpu


def _billions(run: Run) -> float:
    return run.model.billions_of_parameters or _BILLIONS

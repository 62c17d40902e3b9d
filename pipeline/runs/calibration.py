"""plan --calibrate: a minute of the plan's prompts in the real engine; only the rate is kept."""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods.ability import PREFER
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import hardware
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import costs
from factsweep.pipeline.decoding import engine as engines
from factsweep.pipeline.decoding.costs import SPENT
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.expand import Expand
from factsweep.pipeline.stages.plan import Branch, Plan, planned, settled
from factsweep.pipeline.stages.question import Question, Task, check_reading, room
from factsweep.pipeline.storage.store import Store

LIMIT_S = 60.0
_ROWS = 512  # of a relation: enough neighbours for an engine to find their prefixes in its cache


class Job(NamedTuple):
    """Some prompts of a setting, in parts as small as shards, and what is asked about them."""

    branch: Branch
    stage: str
    task: Task
    parts: list[pl.DataFrame]


def calibrate(run: Run) -> Iterator[str]:
    """Measure the rates of a plan for at most `LIMIT_S` and keep them; yields lines about them.

    Raises:
        InputError: the model's replica does not fit one node, or the engine does not load.
    """
    import ray

    run = settled(run)  # here, not by the worker that measures
    if run.model.pipeline_parallel > 1:
        raise InputError(
            "plan --calibrate measures a replica on one node; with model.pipeline_parallel="
            f"{run.model.pipeline_parallel} give cluster.answers_per_s=<of one replica>."
        )
    with cluster.started(run):
        measure = ray.remote(max_retries=0, **cluster.placement(run))(measured)
        try:
            rows: pl.DataFrame = ray.get(measure.remote(run, LIMIT_S))
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise InputError(f"{run.model.name} could not be measured: {reason}") from error
    costs.keep(Store(str(home())), rows, "plan --calibrate")
    for row in rows.iter_rows(named=True):
        yield (
            f"measured        {row['stage']} of {row['setting']}: {row['answers']:,} answers in "
            f"{row['seconds']:.1f} s, {row['answers'] / row['seconds']:.1f}/s on {row['hardware']}"
        )


def measured(run: Run, limit_s: float) -> pl.DataFrame:
    """The rates of each setting and stage of a plan, measured in this process."""
    with prepared(run) as plan:
        asked = list(jobs(plan))
        engine, tokenizer = engines.load(run, plan.weights), models.tokenizer(plan.weights)
        spent = [_spent(plan, job, engine, tokenizer, limit_s / len(asked)) for job in asked]
    return pl.DataFrame([row for row in spent if row["answers"]], schema=SPENT)


@contextmanager
def prepared(run: Run) -> Iterator[Plan]:
    """The plan of a run whose facts are there, in a folder that is gone at the end."""
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(replace(run, artifacts=folder))
        for step in plan.branches[0].sources():
            step.run()
        yield plan


def first_prompts(plan: Plan) -> Iterator[tuple[Branch, Question, pl.DataFrame]]:
    """Each setting with the question for its answers and the prompts of its first relation."""
    for branch in plan.branches:
        table = plan.run.method.ask.ability.answers
        questions = (question for _, question in branch.asked())
        question = next(question for question in questions if question.table == table)
        expand = branch.step(branch.prompts).stage
        assert isinstance(expand, Expand), "prompts are expanded"
        expansion = next(expand.expansions())
        yield branch, question, question.asked(expansion.of(question.source))


def jobs(plan: Plan) -> Iterator[Job]:
    """What is asked of an engine, with prompts of every relation that leave room for an answer."""
    run, tokenizer = plan.run, models.tokenizer(plan.weights)
    for branch in plan.branches:
        expand = branch.step(branch.prompts).stage
        assert isinstance(expand, Expand), "prompts are expanded"
        if run.method.ask.ability == PREFER:
            branch.step(branch.prompts).run()  # candidates are read from beside the prompts
        questions = branch.questions()
        found = [Job(branch, each.table, each.task, []) for each in questions]
        for expansion in expand.expansions():
            for question, job in zip(questions, found, strict=True):
                rows = question.asked(expansion.of(question.source)).head(_ROWS)
                check_reading(job.task, tokenizer, rows)
                ids = job.task.token_ids(tokenizer, expansion.longest(rows).to_list())
                fits = [len(each) <= room(run) for each in ids]
                job.parts.append(rows.filter(pl.Series(fits, dtype=pl.Boolean)))
        yield from found


def _spent(plan: Plan, job: Job, engine: Any, tokenizer: Any, limit_s: float) -> dict[str, Any]:
    """What was answered in the time, as a row of what was spent."""
    sums = Counter[str]()
    began = time.monotonic()
    parts = (rows for rows in job.parts if rows.height)  # one after the other, as shards are
    for answered in job.task.answered(parts, engine, tokenizer):
        sums.update(answered.counts)
        if time.monotonic() - began > limit_s:
            break
    return row(plan, job, sums, time.monotonic() - began)


def row(plan: Plan, job: Job, sums: Mapping[str, float], seconds: float) -> dict[str, Any]:
    """A row of what was spent (`spent.SPENT`) on answers of a job, by what they count."""
    held = hardware(plan.run)
    return {
        "fingerprint": uuid4().hex[:16],
        "stage": job.stage,
        "setting": job.branch.title,
        "model": plan.run.model.name,
        "dtype": plan.run.model.computed_in,
        "hardware": held.name,
        "gpus": held.gpus,
        "cores": held.cores,
        **{name: int(n) for name, n in sums.items()},
        "answers": int(sums["answers"]),
        "seconds": seconds,
        "core_seconds": seconds * held.cores,
    }

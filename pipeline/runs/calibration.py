"""plan --calibrate: measures the rates of the real engine on a minute of the plan's prompts."""

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
from factsweep.operators.methods.method import PREFER
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import hardware
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import costs
from factsweep.pipeline.decoding import engine as engines
from factsweep.pipeline.decoding.costs import SPENT
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.expand import Expand
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan, resolve_run
from factsweep.pipeline.stages.question import Question, Task, check_reading, room
from factsweep.pipeline.storage.store import Store

LIMIT_S = 60.0
_ROWS = 512  # of a relation: enough neighbours for the prefix cache of an engine


class Job(NamedTuple):
    """A question of a setting, with some of its prompts by relation."""

    branch: Branch
    stage: str
    task: Task
    parts: list[pl.DataFrame]


def calibrate(run: Run) -> Iterator[str]:
    """Measure the rates of a plan for at most `LIMIT_S` and keep them; yields lines about them.

    Raises:
        InputError: a replica of the model needs several nodes, or the engine does not load.
    """
    import ray

    run = resolve_run(run)  # on the driver, not on the worker
    if run.model.pipeline_parallel > 1:
        raise InputError(
            "plan --calibrate measures a replica on one node; with model.pipeline_parallel="
            f"{run.model.pipeline_parallel} give cluster.answers_per_s=<of one replica>."
        )
    with cluster.start_ray(run):
        measure = ray.remote(max_retries=0, **cluster.placement(run))(measure_rates)
        try:
            rows: pl.DataFrame = ray.get(measure.remote(run, LIMIT_S))
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise InputError(f"{run.model.name} could not be measured: {reason}") from error
    costs.write_rates(Store(str(home())), rows, "plan --calibrate")
    for row in rows.iter_rows(named=True):
        yield (
            f"measured        {row['stage']} of {row['setting']}: {row['answers']:,} answers in "
            f"{row['seconds']:.1f} s, {row['answers'] / row['seconds']:.1f}/s on {row['hardware']}"
        )


def measure_rates(run: Run, limit_s: float) -> pl.DataFrame:
    """The rates of each setting and stage of a plan, measured in this process."""
    rows = list[dict[str, Any]]()
    with prepare_plan(run) as plan:
        all_jobs = list(list_jobs(plan))
        engine, tokenizer = engines.load(run, plan.weights), models.tokenizer(plan.weights)
        for job in all_jobs:
            sums, began = Counter[str](), time.monotonic()
            parts = (part for part in job.parts if part.height)  # one by one, as shards are
            for answered in job.task.answer_groups(parts, engine, tokenizer):
                sums.update(answered.counts)
                if time.monotonic() - began > limit_s / len(all_jobs):
                    break
            rows.append(build_cost_row(plan, job, sums, time.monotonic() - began))
    return pl.DataFrame([row for row in rows if row["answers"]], schema=SPENT)


@contextmanager
def prepare_plan(run: Run) -> Iterator[Plan]:
    """The plan of a run with its facts, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        plan = build_plan(replace(run, artifacts=folder))
        for step in plan.branches[0].sources():
            step.run()
        yield plan


def first_prompts(plan: Plan) -> Iterator[tuple[Branch, Question, pl.DataFrame]]:
    """Each setting with its main question and the prompts of its first relation."""
    for branch in plan.branches:
        table = plan.run.method.ask.ability.answers
        questions = (question for _, question in branch.list_questions())
        question = next(question for question in questions if question.table == table)
        expand = branch.step(branch.prompts).stage
        assert isinstance(expand, Expand), "prompts are expanded"
        expansion = next(expand.expansions())
        yield branch, question, question.select_rows(expansion.of(question.source))


def list_jobs(plan: Plan) -> Iterator[Job]:
    """The questions of a plan, with prompts of every relation that leave room for an answer."""
    run, tokenizer = plan.run, models.tokenizer(plan.weights)
    for branch in plan.branches:
        expand = branch.step(branch.prompts).stage
        assert isinstance(expand, Expand), "prompts are expanded"
        if run.method.ask.ability == PREFER:
            branch.step(branch.prompts).run()  # candidates lie with the prompts
        pairs = [(q, Job(branch, q.table, q.task, [])) for q in branch.questions()]
        for expansion in expand.expansions():
            for question, job in pairs:
                rows = question.select_rows(expansion.of(question.source)).head(_ROWS)
                check_reading(job.task, tokenizer, rows)
                ids = job.task.token_ids(tokenizer, expansion.longest_texts(rows).to_list())
                fits = [len(prompt) <= room(run) for prompt in ids]
                job.parts.append(rows.filter(pl.Series(fits, dtype=pl.Boolean)))
        yield from (job for _, job in pairs)


def build_cost_row(
    plan: Plan, job: Job, sums: Mapping[str, float], seconds: float
) -> dict[str, Any]:
    """The costs of a job's answers as a row of `SPENT`; `sums` are their counts."""
    hardware_here = hardware(plan.run)
    return {
        "fingerprint": uuid4().hex[:16],
        "stage": job.stage,
        "setting": job.branch.title,
        "model": plan.run.model.name,
        "dtype": plan.run.model.computed_in,
        "hardware": hardware_here.name,
        "gpus": hardware_here.gpus,
        "cores": hardware_here.cores,
        **{name: int(n) for name, n in sums.items()},
        "answers": int(sums["answers"]),
        "seconds": seconds,
        "core_seconds": seconds * hardware_here.cores,
    }

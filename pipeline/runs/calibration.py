"""plan --calibrate: measures the rates of the real engine on a minute of the plan's prompts."""

import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import PREFER
from factsweep.operators.wording import join_list
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import gpus_per_engine, hardware
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.model_metadata import engines_on, gpu_bytes
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import costs
from factsweep.pipeline.decoding import engine as engines
from factsweep.pipeline.decoding.costs import SPENT
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan, resolve_run
from factsweep.pipeline.stages.question import Question, Task, check_reading, room
from factsweep.pipeline.storage.store import Store

LIMIT_S = 60.0
_SUMS = ("prompts", "answers", "prompt_tokens", "cached_tokens", "output_tokens", "seconds")
_ON_ONE_GPU = (2, 4)  # engines that are tried after one
_GAIN = 1.05  # a smaller one may be chance
_ROWS = 512  # of a relation: enough neighbours for the prefix cache of an engine


class Job(NamedTuple):
    """A question of a setting, with some of its prompts by relation."""

    branch: Branch
    stage: str
    task: Task
    parts: list[pl.DataFrame]


def calibrate(run: Run) -> Iterator[str]:
    """Measure the rates of a plan for at most `LIMIT_S` and keep them; yields lines about them.

    Of a model that fits a GPU several times, this is repeated with more engines on one GPU.

    Raises:
        InputError: a replica of the model needs several nodes, or an engine does not load.
    """
    run = resolve_run(run)  # on the driver, not on the worker
    if run.model.pipeline_parallel > 1:
        raise InputError(
            "plan --calibrate measures a replica on one node; with model.pipeline_parallel="
            f"{run.model.pipeline_parallel} give cluster.answers_per_s=<of one replica>."
        )
    rates = dict[int, float]()
    with cluster.start_ray(run):
        for tried_run in vary_engines(run):
            n = tried_run.model.replicas.per_gpu
            try:
                rows = measure_together(tried_run)
            except InputError as error:
                if not rates:
                    raise
                yield f"engines         {n} on a GPU: {error}"
                break
            costs.write_rates(Store(str(home())), rows, "plan --calibrate")
            yield from describe_rates(rows)
            best = max(rates.values(), default=0.0)
            rates[n] = n * float(rows["answers"].sum()) / float(rows["seconds"].sum())
            if rates[n] < _GAIN * best:
                break  # more engines would wait for the same GPU
    if len(rates) > 1:
        yield describe_best(rates)


def vary_engines(run: Run) -> Iterator[Run]:
    """The run unchanged, and then with more engines on a GPU, if one GPU holds them."""
    yield run
    memory, width = gpu_bytes(run.cluster.hardware), 4 if run.model.dtype == "float32" else 2
    if gpus_per_engine(run) != 1 or run.model.replicas.per_gpu > 1 or memory is None:
        return
    weights = (run.model.billions_of_parameters or math.inf) * 1e9 * width
    most = engines_on(memory * run.model.gpu_memory_utilization, weights)
    for n in _ON_ONE_GPU:
        if n <= most:
            replicas = replace(run.model.replicas, per_gpu=n)
            yield replace(run, model=replace(run.model, replicas=replicas))


def describe_rates(rows: pl.DataFrame) -> Iterator[str]:
    """A line for each stage of each setting."""
    for row in rows.iter_rows(named=True):
        shared = f", {row['per_gpu']} engines on a GPU" if row["per_gpu"] else ""
        yield (
            f"measured        {row['stage']} of {row['setting']}: {row['answers']:,} answers in "
            f"{row['seconds']:.1f} s, {row['answers'] / row['seconds']:.1f}/s on {row['hardware']}"
            f"{shared}"
        )


def describe_best(rates: Mapping[int, float]) -> str:
    """Which number of engines on a GPU answers most; a gain below 5 % is none.

    >>> describe_best({1: 1700.0, 2: 2930.0, 4: 2950.0})
    'engines         2 on a GPU answer 2,930.0/s together, 1.72 × one: model.replicas.per_gpu=2'
    >>> describe_best({1: 1700.0, 2: 1710.0})
    'engines         one on a GPU answers 1,700.0/s; 2 are not faster'
    """
    best = 1
    for n, rate in rates.items():
        if rate >= _GAIN * rates[best]:
            best = n
    if best == 1:
        numbers = join_list(str(n) for n in rates if n > 1)
        return f"engines         one on a GPU answers {rates[1]:,.1f}/s; {numbers} are not faster"
    return (
        f"engines         {best} on a GPU answer {rates[best]:,.1f}/s together, "
        f"{rates[best] / rates[1]:.2f} × one: model.replicas.per_gpu={best}"
    )


def measure_together(run: Run) -> pl.DataFrame:
    """The rates of as many engines as share a GPU, all at work at once, with their sums."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    n, group, options = run.model.replicas.per_gpu, None, cluster.placement(run)
    if n > 1:  # one bundle: all of them on one GPU, and no other engine
        group = ray.util.placement_group([{"CPU": 1, "GPU": 1}])
        in_group = PlacementGroupSchedulingStrategy(group)
        options |= {"num_cpus": 1 / n, "scheduling_strategy": in_group}
    actors = [ray.remote(**options)(RatedEngine).remote() for _ in range(n)]
    try:
        ray.get([actor.load.remote(run) for actor in actors])
        parts: list[pl.DataFrame] = ray.get([actor.measure.remote(LIMIT_S) for actor in actors])
        ray.wait([actor.__ray_terminate__.remote() for actor in actors], num_returns=n, timeout=60)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(f"{run.model.name} could not be measured: {reason}") from error
    finally:
        for actor in actors:
            ray.kill(actor)
        if group is not None:
            ray.util.remove_placement_group(group)
    if n == 1:
        return parts[0]
    sums = [pl.col(name).sum() for name in _SUMS]
    firsts = pl.exclude("stage", "setting", *_SUMS).first()
    rows = pl.concat(parts).group_by("stage", "setting", maintain_order=True)
    return rows.agg(*sums, firsts).select(list(SPENT))


class RatedEngine:
    """A loaded engine that answers prompts of a plan for its rates; a Ray actor."""

    def load(self, run: Run) -> None:
        """Load the engine, and prepare the prompts."""
        self._folders = ExitStack()
        self._plan = self._folders.enter_context(prepare_plan(run))
        self._jobs = list(list_jobs(self._plan))
        self._engine = engines.load(run, self._plan.weights)

    def measure(self, limit_s: float) -> pl.DataFrame:
        """The rates of each setting and stage; columns: `SPENT`."""
        rows, tokenizer = list[dict[str, Any]](), models.tokenizer(self._plan.weights)
        with self._folders:
            for job in self._jobs:
                sums, began = Counter[str](), time.monotonic()
                parts = (part for part in job.parts if part.height)  # one by one, as shards are
                for answered in job.task.answer_groups(parts, self._engine, tokenizer):
                    sums.update(answered.counts)
                    if time.monotonic() - began > limit_s / len(self._jobs):
                        break
                rows.append(build_cost_row(self._plan, job, sums, time.monotonic() - began))
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
        expansion = next(branch.expand.expansions())
        yield branch, question, question.select_rows(expansion.of(question.source))


def list_jobs(plan: Plan) -> Iterator[Job]:
    """The questions of a plan, with prompts of every relation that leave room for an answer."""
    run, tokenizer = plan.run, models.tokenizer(plan.weights)
    for branch in plan.branches:
        if run.method.ask.ability == PREFER:
            branch.step(branch.prompts).run()  # candidates lie with the prompts
        pairs = [(q, Job(branch, q.table, q.task, [])) for q in branch.questions()]
        for expansion in branch.expand.expansions():
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
        "per_gpu": hardware_here.per_gpu if hardware_here.per_gpu > 1 else None,
        **{name: int(n) for name, n in sums.items()},
        "answers": int(sums["answers"]),
        "seconds": seconds,
        "core_seconds": seconds * hardware_here.cores,
    }

"""Checks of a run before it starts Ray or writes anything: the same as those of `plan`."""

from contextlib import suppress
from dataclasses import replace

import polars as pl

from factsweep.operators.datasets.facts import Facts, select_extra_tables
from factsweep.operators.errors import DamagedFileError, InputError, UnavailableError
from factsweep.operators.prompts.expansion import Expansion
from factsweep.operators.wording import name_servers
from factsweep.pipeline.cluster import machine_checks
from factsweep.pipeline.cluster.ray_cluster import check_engine
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.engine import find_silent_servers
from factsweep.pipeline.decoding.remaining_prompts import list_work
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.plan import Branch, Plan, warnings
from factsweep.pipeline.stages.question import check_reading, room

_FEW = 16  # pairs of each relation, in addition to demonstrations


def check_plan(plan: Plan) -> list[str]:
    """Refuse a run that cannot start; returns its warnings, none if it is complete.

    Each setting is expanded for a few pairs of each relation, and the first prompt of each template
    is read by the tokenizer.

    Raises:
        InputError: a row, a template, the tokenizer, the engine or this machine is unfit.
    """
    with suppress(DamagedFileError):  # the run sets the file aside, and computes it again
        if plan.is_complete() or (plan.run.budget is not None and is_answered(plan)):
            return []
        for answers in plan.external_answers():
            answers.check()
        if plan.run.answers is None and any(branch.lacks_answers() for branch in plan.branches):
            machine_checks.refuse_unfit_machine(plan.run)
            check_engine(plan.run)
            check_servers(plan.run)
        sentences = list(warnings(plan))
        artifacts = ((branch.prompts, branch.admitted) for branch in plan.branches)
        if not all(artifact.is_complete() for pair in artifacts for artifact in pair):
            facts = read_sources(plan)
            for branch in plan.branches:
                _check_setting(plan, branch, facts)
        return sentences
    return []


def check_servers(run: Run) -> None:
    """Refuse servers that differ, or do not answer at all."""
    if run.engine.name == "endpoint" and not run.model.urls:
        raise InputError(
            "the servers of cluster.launch.serve are started by the job; submit it with factsweep "
            "launch, or give model.endpoint.urls."
        )
    if (n := len(warn_of_silent_servers(run))) and n == len(run.model.urls):
        raise UnavailableError(
            f"none of {name_servers(run.model.urls)} answers; start them, or try again later."
        )


def warn_of_silent_servers(run: Run) -> list[str]:
    """Warn of each server of a pool that does not answer; those of different models are refused."""
    silent = find_silent_servers(run)
    for url in silent:
        LOG.warning("the server %s does not answer now.", url)
    return silent


def is_answered(plan: Plan) -> bool:
    """Whether all prompts that a plan asks have an answer, or a reason for having none."""
    if not all(step.artifact.is_complete() for step in plan.steps if step.stage is not None):
        return False
    return not any(remaining_prompts.count_left(list_work(plan)))


def read_sources(plan: Plan) -> Facts:
    """The facts of a run, with their knowledge base if its method needs one."""
    benchmark = plan.run.benchmark
    facts = facts_stage.read(benchmark)
    if not plan.run.method.ask.knowledge_base:
        return facts
    base = facts_stage.read_knowledge_base(benchmark, catalog.entry_of_benchmark(benchmark))
    return replace(facts, knowledge_base=base)


def _check_setting(plan: Plan, branch: Branch, facts: Facts) -> None:
    run, n_pairs = plan.run, getattr(branch.setting, "shots", 0) + _FEW
    few_facts = _first_pairs(branch.expand.unify_shown_labels(facts), n_pairs)
    expansions = list(run.method.ask.expand(few_facts, branch.setting, seed=run.seed))
    if run.answers is None and not branch.admitted.is_complete():
        _check_reading(plan, branch, expansions)


def _first_pairs(facts: Facts, n: int) -> Facts:
    groups = [name for name in ("relation_id", "split") if name in facts.pairs.columns]
    pairs = facts.pairs.filter(pl.int_range(pl.len()).over(groups) < n)
    extra_tables = select_extra_tables(facts, facts.relations, pairs)
    return replace(facts, pairs=pairs, extra_tables=extra_tables)


def _check_reading(plan: Plan, branch: Branch, expansions: list[Expansion]) -> None:
    """Refuse prompts that the model would misread, and a context that holds none of them."""
    run, tokenizer = plan.run, models.tokenizer(plan.weights)
    question, limit = branch.questions()[0], room(run)
    lengths = list[int]()
    for expansion in expansions:
        rows = question.select_rows(expansion.of(question.source))
        lengths += check_reading(question.task, tokenizer, rows)
    if lengths and min(lengths) > limit and run.decoding.max_failed_share < 1:
        raise InputError(
            f"{branch.title}: prompts have {min(lengths):,} tokens and more, and "
            f"model.max_model_len={run.model.max_model_len} leaves room for {limit:,} beside an "
            "answer; raise it, or lower decoding.max_tokens."
        )

"""plan: what a run would compute, without computing it or writing anything."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from operators.datasets.facts import Facts
from operators.prompts.expansion import Expansion
from operators.prompts.prefixes import n_shared
from operators.prompts.tokens import encode
from pipeline import models
from pipeline.artifact import Artifact, counts_in
from pipeline.cluster import gpus_per_engine
from pipeline.plan import Branch, Plan, planned
from pipeline.progress import clock
from pipeline.settings import Run
from pipeline.stages import facts as facts_stage
from pipeline.stages.generate import n_canary

_PROMPTS_AT_ONCE = 4096


@dataclass
class Forecast:
    """The figures of one setting. Tokens are those of the prompts that are decoded."""

    branch: Branch
    prompts: Counter[str] = field(default_factory=Counter)  # by relation
    duplicates: int = 0
    too_long: set[str] = field(default_factory=set)  # their ids
    tokens: int = 0
    shared_tokens: int = 0
    shards: int = 0
    sampled: int = 0
    canary: int = 0
    prompts_left: int = 0
    canary_left: int = 0
    samples_left: int = 0


@dataclass(frozen=True)
class Rate:
    """Answers an engine gives a second, and where the figure is from."""

    per_s: float
    source: str


def forecast(run: Run) -> tuple[Plan, list[Forecast]]:
    """Expand and tokenise every setting of the run, and look what of it is there."""
    plan = planned(run)
    facts = facts_stage.read(run.benchmark)
    return plan, [_setting(plan, branch, facts) for branch in plan.branches]


def _setting(plan: Plan, branch: Branch, facts: Facts) -> Forecast:
    figures, tokenizer = Forecast(branch), models.tokenizer(plan.weights)
    run = plan.run
    for expansion in run.method.expand(facts, branch.setting, seed=run.seed):
        figures.prompts[expansion.relation_id] = expansion.prompts.height
        figures.shards += -(-expansion.prompts.height // run.cluster.rows_per_shard)
        _count(figures, expansion, tokenizer, run)
    done = _rows_done(branch.greedy)
    wanted = sum(figures.prompts.values()) - figures.duplicates - len(figures.too_long)
    figures.prompts_left = max(0, wanted - done)
    if branch.canary is not None:
        figures.canary_left = max(0, figures.canary - _rows_done(branch.canary))
    wanted = figures.sampled * len(branch.blocks)
    figures.samples_left = max(0, wanted - sum(map(_rows_done, branch.blocks)))
    figures.samples_left *= run.decoding.samples.block_size
    return figures


def _count(figures: Forecast, expansion: Expansion, tokenizer: Any, run: Run) -> None:
    """Add the token figures of a relation."""
    prompts = expansion.prompts
    figures.duplicates += prompts["same_as"].count()
    limit = run.model.max_model_len - run.decoding.max_tokens
    context = expansion.contexts.select("context_id", context="text")
    decoded = prompts.filter(pl.col("same_as").is_null())
    for rows in decoded.iter_slices(_PROMPTS_AT_ONCE):
        whole = rows.join(context, on="context_id", maintain_order="left")
        texts = whole.select(pl.concat_str("context", "query")).to_series()
        ids = encode(tokenizer, texts.to_list(), chat_template=run.model.chat_template)
        figures.tokens += sum(map(len, ids))
        figures.shared_tokens += n_shared(ids)
        long = [len(each) > limit for each in ids]
        figures.too_long.update(rows["prompt_id"].filter(pl.Series(long, dtype=pl.Boolean)))
    twice = decoded.filter(pl.col("calibration_rank") < n_canary(run.decoding))
    figures.canary += sum(each not in figures.too_long for each in twice["prompt_id"])
    sampled = prompts.filter(pl.col("calibration_rank") < run.decoding.samples.n_prompts)
    first = sampled.select(pl.coalesce("same_as", "prompt_id")).to_series()
    figures.sampled += sum(each not in figures.too_long for each in first)


def _rows_done(artifact: Artifact) -> int:
    table = artifact.stage
    if artifact.is_complete():
        return sum(artifact.rows(table).values())
    return sum(artifact.footer(table, shard)[0] for shard in artifact.shards(table))


def rate(plan: Plan, table: str) -> Rate | None:
    """Answers a second of an engine: as given, or measured by earlier work with the same model."""
    given = plan.run.cluster.answers_per_s
    if given is not None:
        return Rate(given, "given")
    answers, seconds = 0.0, 0.0
    for counts in counts_in(plan.branches[0].greedy.store, table):
        if counts.get("model") == plan.run.model.name:
            answers += float(counts.get("answers", 0))
            seconds += float(counts.get("seconds", 0))
    return Rate(answers / seconds, "measured in this store") if seconds else None


def lines(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    """The plan in words and figures."""
    run = plan.run
    yield f"{run.name}: {run.model.name} ({plan.weights.revision}) on {run.benchmark.name}"
    for figures in forecasts:
        yield ""
        yield from _setting_lines(figures)
    yield ""
    yield from _time_lines(plan, forecasts)


def _setting_lines(figures: Forecast) -> Iterator[str]:
    setting = figures.branch.setting
    n = sum(figures.prompts.values())
    tokens = max(1, figures.tokens)
    yield " ".join(filter(None, (setting.name, setting.variant)))
    by_relation = ", ".join(f"{relation} {rows:,}" for relation, rows in figures.prompts.items())
    yield f"  prompts         {n:,} ({by_relation})"
    yield f"  duplicates      {figures.duplicates:,} ({figures.duplicates / max(1, n):.1%})"
    yield f"  too long        {len(figures.too_long):,}"
    yield f"  prompt tokens   {figures.tokens:,}"
    shared = figures.shared_tokens / tokens
    yield f"  shared prefix   {shared:.1%} of the tokens stand at the start of the prompt before"
    yield f"  shards          {figures.shards:,}"
    yield f"  sampled         {figures.sampled:,} prompts"
    yield f"  decoded twice   {figures.canary:,} prompts"
    yield (
        f"  left to decode  {figures.prompts_left:,} prompts, "
        f"{figures.canary_left:,} a second time, "
        f"{figures.samples_left:,} samples"
    )


def _time_lines(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    left = {
        "generations": sum(f.prompts_left + f.canary_left for f in forecasts),
        "samples": sum(f.samples_left for f in forecasts),
    }
    seconds, replicas = 0.0, plan.run.model.replicas.max
    for table, answers in left.items():
        found = rate(plan, table)
        if found is None and answers:
            yield (
                f"time            unknown: nothing in this store was decoded with "
                f"{plan.run.model.name}; give cluster.answers_per_s=<of one replica>"
            )
            return
        if found is not None and answers:
            yield f"rate            {found.per_s:.1f} {table}/s of a replica, {found.source}"
            seconds += answers / found.per_s
    gpus = gpus_per_engine(plan.run)
    hours = seconds * gpus / 3600
    used = f"{hours:.2f} GPU-hours" if gpus else f"{seconds / 3600:.2f} engine-hours on CPUs"
    yield f"time            {clock(seconds / replicas)} with {replicas} replicas, {used}"

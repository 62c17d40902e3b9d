"""Which artifacts a run is made of; their names are known before anything is computed.

facts → prompts → admitted → generations ─┬→ matched ─┬→ metrics     (once a setting)
                          ├→ samples × n ─┘           │
                          └→ canary ──────────────────┘
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from operators.methods.method import Asked
from pipeline import models
from pipeline.artifact import Artifact, Recipe
from pipeline.cluster import hardware
from pipeline.models import Weights
from pipeline.settings import Run
from pipeline.stages import admit, aggregate, decode, expand, facts, match
from pipeline.stages.decode import Work
from pipeline.store import Store


@dataclass(frozen=True)
class Branch:
    """The artifacts of one setting."""

    setting: Asked
    facts: Artifact
    prompts: Artifact
    admitted: Artifact
    greedy: Artifact
    canary: Artifact | None
    blocks: tuple[Artifact, ...]
    matched: Artifact
    metrics: Artifact

    def artifacts(self) -> Iterator[Artifact]:
        """All of them, inputs before outputs."""
        yield from (self.facts, self.prompts, self.admitted, *self.decoded())
        yield from (self.matched, self.metrics)

    def decoded(self) -> Iterator[Artifact]:
        """Those that an engine writes."""
        yield self.greedy
        yield from self.ranked()

    def ranked(self) -> Iterator[Artifact]:
        """Those that an engine writes for ranked prompts alone."""
        if self.canary is not None:
            yield self.canary
        yield from self.blocks


@dataclass(frozen=True)
class Plan:
    """All artifacts of a run."""

    run: Run
    weights: Weights
    branches: tuple[Branch, ...]

    def is_complete(self) -> bool:
        """Whether there is nothing left to compute.

        The metrics are enough: what they were made of may have been removed to save room. But an
        artifact that is open, since a damaged shard of it was set aside, is made whole again.
        """
        artifacts = (artifact for branch in self.branches for artifact in branch.artifacts())
        return all(branch.metrics.is_complete() for branch in self.branches) and not any(
            artifact.is_open() for artifact in artifacts
        )


def planned(run: Run) -> Plan:
    """The artifacts of a run.

    Raises:
        InputError: the data set or the model cannot be found.
    """
    weights = models.resolve(run.model)
    facts_recipe = facts.recipe(run.benchmark)
    branches = tuple(_branch(run, setting, facts_recipe, weights) for setting in run.settings)
    return Plan(run, weights, branches)


def _branch(run: Run, setting: Asked, facts_recipe: Recipe, weights: Weights) -> Branch:
    decoding, samples = run.decoding, run.decoding.samples
    method = run.benchmark.method
    prompts = expand.recipe(facts_recipe, method, setting, run.seed)
    admitted = admit.recipe(prompts, weights, decoding.max_tokens)
    greedy = decode.greedy_recipe(admitted, weights, decoding)
    n_blocks = samples.n_answers // samples.block_size if samples.n_prompts else 0
    blocks = [
        decode.block_recipe(admitted, weights, decoding, block, run.seed)
        for block in range(n_blocks)
    ]
    canary = (
        decode.canary_recipe(admitted, weights, decoding) if decode.n_canary(decoding) else None
    )
    matched = match.recipe(greedy, blocks, method, run.matching, samples.n_prompts)
    names = (run.model.name, run.benchmark.name, setting, run.seed)
    metrics = aggregate.recipe(matched, canary, run.metrics, *names)
    at = partial(Artifact, Store(run.artifacts))
    return Branch(
        setting=setting,
        facts=at(facts_recipe),
        prompts=at(prompts),
        admitted=at(admitted),
        greedy=at(greedy),
        canary=None if canary is None else at(canary),
        blocks=tuple(map(at, blocks)),
        matched=at(matched),
        metrics=at(metrics),
    )


def work(plan: Plan) -> list[Work]:
    """The shards that have not been decoded, whose prompts must be there."""
    return [item for branch in plan.branches for item in _branch_work(plan.run, branch)]


def _branch_work(run: Run, branch: Branch) -> Iterator[Work]:
    common: dict[str, Any] = {
        "prompts": branch.prompts,
        "admitted": branch.admitted,
        "model": run.model.name,
        "rows_per_chunk": run.cluster.rows_per_chunk,
        "max_deaths": run.cluster.max_deaths,
        "max_failed_share": run.decoding.max_failed_share,
        "hardware": hardware(run),
        "chat_template": run.model.chat_template,
    }
    sampling = decode.greedy_sampling(run.decoding)
    for shard in _missing(branch.greedy, branch.prompts, "generations", "prompts"):
        yield Work(artifact=branch.greedy, shard=shard, sampling=sampling, **common)
    if branch.canary is not None:
        sampling = decode.canary_sampling(run.decoding)
        ranked = {**common, "n_ranked": decode.n_canary(run.decoding)}
        for shard in _missing(branch.canary, branch.prompts, "canary", "ranked"):
            yield Work(artifact=branch.canary, shard=shard, sampling=sampling, **ranked)
    sampling = decode.block_sampling(run.decoding)
    for number, block in enumerate(branch.blocks):
        seeded: dict[str, Any] = {
            "n_ranked": run.decoding.samples.n_prompts,
            "block": number,
            "seed": run.seed,
        }
        for shard in _missing(block, branch.prompts, "samples", "ranked"):
            yield Work(artifact=block, shard=shard, sampling=sampling, **common, **seeded)


def _missing(output: Artifact, prompts: Artifact, table: str, source: str) -> list[str]:
    if output.is_complete():
        return []
    done = set(output.shards(table))
    return [shard for shard in prompts.shards(source) if shard not in done]

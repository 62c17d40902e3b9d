"""Which artifacts a run is made of; their names are known before anything is computed.

facts → prompts → admitted → generations ─┬→ matched ─┬→ metrics     (once a setting)
                          ├→ samples × n ─┘           │
                          └→ canary ──────────────────┘
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from operators.methods.method import Asked
from pipeline.config.settings import Run
from pipeline.execution.cluster import device, hardware
from pipeline.inputs import models
from pipeline.inputs.models import Weights
from pipeline.machine import dtype
from pipeline.stages import admit, aggregate, expand, facts, fill, generate, likelihood, match
from pipeline.stages.decode import SOURCES, Task, Work
from pipeline.stages.fill import Fill
from pipeline.stages.generate import Generate
from pipeline.stages.likelihood import Score
from pipeline.storage.artifact import Artifact, Recipe
from pipeline.storage.store import Store


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

    @property
    def title(self) -> str:
        """The setting, with its variant if it has one."""
        return " ".join(filter(None, (self.setting.name, self.setting.variant)))

    def artifacts(self) -> Iterator[Artifact]:
        """All of them, inputs before outputs."""
        yield from (self.facts, self.prompts, self.admitted, *self.decoded())
        yield from (self.matched, self.metrics)

    def decoded(self) -> Iterator[Artifact]:
        """Those that an engine writes."""
        yield self.greedy
        yield from self.further()

    def further(self) -> Iterator[Artifact]:
        """Those that an engine writes beside the answers to all prompts."""
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


def settled(run: Run) -> Run:
    """The run with all that depends on this machine and changes a result: the model's dtype."""
    return replace(run, model=models.settled(run.model, run.cluster.device))


def slow_dtype(run: Run) -> str | None:
    """What the run's dtype costs on a CPU without instructions for it; null if it costs nothing."""
    return dtype.warning(run.model.dtype, device(run.cluster))


def planned(run: Run) -> Plan:
    """The artifacts of a run.

    Raises:
        InputError: the data set or the model cannot be found.
    """
    run = settled(run)
    weights = models.resolve(run.model)
    facts_recipe = facts.recipe(run.benchmark)
    branches = tuple(_branch(run, setting, facts_recipe, weights) for setting in run.settings)
    return Plan(run, weights, branches)


def _branch(run: Run, setting: Asked, facts_recipe: Recipe, weights: Weights) -> Branch:
    method = run.benchmark.method
    prompts = expand.recipe(facts_recipe, method, setting, run.seed)
    admitted = admit.recipe(prompts, weights, run.decoding.max_tokens)
    decoded = _decoded(run, admitted, weights)
    n_prompts = run.decoding.samples.n_prompts
    matched = match.recipe(decoded.greedy, decoded.blocks, method, run.matching, n_prompts)
    names = (run.model.name, run.benchmark.name, setting, run.seed)
    metrics = aggregate.recipe(matched, decoded.canary, run.metrics, *names)
    at = partial(Artifact, Store(run.artifacts))
    return Branch(
        setting=setting,
        facts=at(facts_recipe),
        prompts=at(prompts),
        admitted=at(admitted),
        greedy=at(decoded.greedy),
        canary=None if decoded.canary is None else at(decoded.canary),
        blocks=tuple(map(at, decoded.blocks)),
        matched=at(matched),
        metrics=at(metrics),
    )


class _Decoded(NamedTuple):
    """The recipes of what an engine writes."""

    greedy: Recipe
    canary: Recipe | None
    blocks: list[Recipe]


def _decoded(run: Run, admitted: Recipe, weights: Weights) -> _Decoded:
    if run.method.ability == "fill":
        masked, priors = (
            fill.recipe(stage, admitted, weights, run.decoding) for stage in ("masked", "priors")
        )
        return _Decoded(masked, None, [priors])
    decoding, samples = run.decoding, run.decoding.samples
    if run.method.ability == "score":
        scores, again = (
            likelihood.recipe(stage, admitted, weights, decoding)
            for stage in ("scores", "rescored")
        )
        return _Decoded(scores, again if decoding.canary_prompts else None, [])
    n_blocks = samples.n_answers // samples.block_size if samples.n_prompts else 0
    n_canary = generate.n_canary(decoding)
    return _Decoded(
        generate.greedy_recipe(admitted, weights, decoding),
        generate.canary_recipe(admitted, weights, decoding) if n_canary else None,
        [
            generate.block_recipe(admitted, weights, decoding, block, run.seed)
            for block in range(n_blocks)
        ],
    )


def work(plan: Plan) -> list[Work]:
    """The shards that have not been decoded, whose prompts must be there."""
    return [item for branch in plan.branches for item in _branch_work(plan.run, branch)]


def _branch_work(run: Run, branch: Branch) -> Iterator[Work]:
    for artifact, task, n_ranked in tasks(run, branch):
        for shard in _missing(artifact, branch.prompts):
            yield Work(
                artifact=artifact,
                prompts=branch.prompts,
                admitted=branch.admitted,
                shard=shard,
                model=run.model.name,
                task=task,
                rows_per_chunk=run.cluster.rows_per_chunk,
                max_deaths=run.cluster.max_deaths,
                max_failed_share=run.decoding.max_failed_share,
                hardware=hardware(run),
                n_ranked=n_ranked,
            )


def tasks(run: Run, branch: Branch) -> Iterator[tuple[Artifact, Task, int | None]]:
    """What is asked for each artifact that an engine writes, and of how many ranked prompts."""
    if run.method.ability == "fill":
        for artifact in branch.decoded():
            yield artifact, Fill(branch.facts), None
        return
    if run.method.ability == "score":
        yield branch.greedy, Score(), None
        if branch.canary is not None:
            yield branch.canary, Score(backwards=True), run.decoding.canary_prompts
        return
    decoding, chat_template = run.decoding, run.model.chat_template
    yield branch.greedy, Generate(generate.greedy_sampling(decoding), chat_template), None
    if branch.canary is not None:
        sampling = generate.canary_sampling(decoding)
        yield branch.canary, Generate(sampling, chat_template), generate.n_canary(decoding)
    for number, block in enumerate(branch.blocks):
        sampling = generate.block_sampling(decoding)
        seeded = Generate(sampling, chat_template, block=number, seed=run.seed)
        yield block, seeded, decoding.samples.n_prompts


def asked(run: Run, branch: Branch) -> dict[str, tuple[Task, int | None]]:
    """The same by stage: all blocks of samples are asked alike."""
    return {artifact.stage: (task, n) for artifact, task, n in tasks(run, branch)}


def _missing(output: Artifact, prompts: Artifact) -> list[str]:
    if output.is_complete():
        return []
    done = set(output.shards(output.stage))
    return [shard for shard in prompts.shards(SOURCES[output.stage]) if shard not in done]

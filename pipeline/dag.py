"""Which artifacts a run is made of, and the Ray tasks that make those that are not there yet.

    facts → prompts → admitted → generations ─┐
                              └→ samples × n ─┴→ matched → metrics     (once a setting)

Ray's own task graph is the DAG: a stage is a task that waits for the futures of its inputs. One
pool of engines decodes the shards of all settings, so that a model is loaded once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from operators.prompts.setting import Setting
from pipeline import models
from pipeline.artifact import Artifact, Recipe
from pipeline.models import Weights
from pipeline.settings import Run
from pipeline.stages import admit, aggregate, decode, expand, facts, match
from pipeline.stages.decode import Work
from pipeline.store import Store


@dataclass(frozen=True)
class Branch:
    """The artifacts of one setting."""

    setting: Setting
    facts: Artifact
    prompts: Artifact
    admitted: Artifact
    greedy: Artifact
    blocks: tuple[Artifact, ...]
    matched: Artifact
    metrics: Artifact

    def artifacts(self) -> Iterator[Artifact]:
        """All of them, inputs before outputs."""
        yield from (self.facts, self.prompts, self.admitted, self.greedy)
        yield from (*self.blocks, self.matched, self.metrics)

    def decoded(self) -> Iterator[Artifact]:
        """Those that an engine writes."""
        yield from (self.greedy, *self.blocks)


@dataclass(frozen=True)
class Plan:
    """All artifacts of a run. Their names are known before anything is computed."""

    run: Run
    weights: Weights
    branches: tuple[Branch, ...]

    def is_complete(self) -> bool:
        """Whether there is nothing left to compute."""
        return all(branch.metrics.is_complete() for branch in self.branches)


def plan(run: Run) -> Plan:
    """The artifacts of a run.

    Raises:
        InputError: the data set or the model cannot be found.
    """
    weights = models.resolve(run.model)
    facts_recipe = facts.recipe(run.benchmark)
    branches = tuple(_branch(run, setting, facts_recipe, weights) for setting in run.settings)
    return Plan(run, weights, branches)


def _branch(run: Run, setting: Setting, facts_recipe: Recipe, weights: Weights) -> Branch:
    decoding, samples = run.decoding, run.decoding.samples
    prompts = expand.recipe(facts_recipe, setting, run.seed)
    admitted = admit.recipe(prompts, weights, decoding.max_tokens)
    greedy = decode.greedy_recipe(admitted, weights, decoding)
    n_blocks = samples.n_answers // samples.block_size if samples.n_prompts else 0
    blocks = [
        decode.block_recipe(admitted, weights, decoding, block, run.seed)
        for block in range(n_blocks)
    ]
    matched = match.recipe(greedy, blocks, run.matching, samples.n_prompts)
    metrics = aggregate.recipe(
        matched, run.metrics, run.model.name, run.benchmark.name, setting, run.seed
    )
    store = Store(run.artifacts)
    single = [facts_recipe, prompts, admitted, greedy, matched, metrics]
    at = [Artifact(store, recipe) for recipe in single]
    sampled = tuple(Artifact(store, recipe) for recipe in blocks)
    return Branch(setting, *at[:4], sampled, *at[4:])


def work(plan: Plan) -> list[Work]:
    """The shards that have not been decoded, whose prompts must be there."""
    return [item for branch in plan.branches for item in _branch_work(plan.run, branch)]


def _branch_work(run: Run, branch: Branch) -> Iterator[Work]:
    common: dict[str, Any] = {
        "prompts": branch.prompts,
        "admitted": branch.admitted,
        "model": run.model.name,
        "n_prompts": run.decoding.samples.n_prompts,
        "rows_per_chunk": run.cluster.rows_per_chunk,
        "chat_template": run.model.chat_template,
    }
    sampling = decode.greedy_sampling(run.decoding)
    for shard in _missing(branch.greedy, branch.prompts, "generations", "prompts"):
        yield Work(artifact=branch.greedy, shard=shard, sampling=sampling, **common)
    sampling = decode.block_sampling(run.decoding)
    for number, block in enumerate(branch.blocks):
        for shard in _missing(block, branch.prompts, "samples", "ranked"):
            seeded = {"block": number, "seed": run.seed}
            yield Work(artifact=block, shard=shard, sampling=sampling, **common, **seeded)


def _missing(output: Artifact, prompts: Artifact, table: str, source: str) -> list[str]:
    if output.is_complete():
        return []
    done = set(output.shards(table))
    return [shard for shard in prompts.shards(source) if shard not in done]


def submit(plan: Plan, tally: Any) -> list[Any]:
    """Start all that is missing; returns the futures of the metrics.

    A stage whose artifact is complete is not run, and a task starts when its inputs are there.
    """
    import ray

    from pipeline import pool

    run = plan.run
    remote = ray.remote(_make)

    def stage(make: Callable[..., None], artifact: Artifact, *arguments: Any, after: Any) -> Any:
        return remote.remote(make, artifact, arguments, *after)

    first = plan.branches[0].facts
    loaded = stage(facts.make, first, run.benchmark, after=())
    admitted = []
    for b in plan.branches:
        size = run.cluster.rows_per_shard
        expanded = stage(expand.make, b.prompts, b.facts, b.setting, run.seed, size, after=[loaded])
        arguments = (b.prompts, plan.weights, run.decoding.max_tokens)
        admitted.append(stage(admit.make, b.admitted, *arguments, after=[expanded]))
    decoded = ray.remote(num_cpus=0)(pool.decode_all).remote(plan, tally, *admitted)
    metrics = []
    for b in plan.branches:
        arguments = (b.facts, b.prompts, b.greedy, b.blocks, run.matching)
        matched = stage(match.make, b.matched, *arguments, after=[decoded])
        n_sampled = run.decoding.samples.n_prompts if b.blocks else 0
        arguments = (b.matched, b.prompts, n_sampled)
        metrics.append(stage(aggregate.make, b.metrics, *arguments, after=[matched]))
    return metrics


def _make(
    make: Callable[..., None], artifact: Artifact, arguments: tuple[Any, ...], *_after: None
) -> None:
    if not artifact.is_complete():
        make(artifact, *arguments)

"""The Ray tasks that make the artifacts of a plan that are not there yet.

Ray's own task graph is the DAG: a stage is a task that waits for the futures of its inputs. One
pool of engines decodes the shards of all settings, so that a model is loaded once.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.execution.cluster import beside_driver
from pipeline.execution.plan import Branch, Plan
from pipeline.execution.pool import decode_all
from pipeline.execution.timing import timed
from pipeline.inputs import catalog
from pipeline.stages import admit, aggregate, expand, facts, match
from pipeline.storage.artifact import Artifact


def submit(plan: Plan, tally: Any) -> list[Any]:
    """Start all that is missing; returns the futures of the metrics.

    A stage whose artifact is complete is not run, and a task starts when its inputs are there.
    """
    import ray

    benchmark = plan.run.benchmark
    entry = catalog.entry(benchmark.data)  # here: a worker may not see the user's folder
    loaded = _task([], facts.make, plan.branches[0].facts, benchmark, entry)
    admitted = [_admitted(plan, branch, loaded) for branch in plan.branches]
    beside = ray.remote(num_cpus=0, scheduling_strategy=beside_driver())
    decoded = beside(decode_all).remote(plan, tally, *admitted)
    return [_measured(plan, branch, decoded) for branch in plan.branches]


def _admitted(plan: Plan, branch: Branch, loaded: Any) -> Any:
    run = plan.run
    question = (branch.facts, branch.setting, run.seed, run.cluster.rows_per_shard)
    expanded = _task([loaded], expand.make, branch.prompts, *question)
    limits = (branch.prompts, plan.weights, run.decoding.max_tokens)
    return _task([expanded], admit.make, branch.admitted, *limits)


def _measured(plan: Plan, branch: Branch, decoded: Any) -> Any:
    run = plan.run
    answers = (branch.facts, branch.prompts, branch.greedy, branch.blocks)
    matched = _task([decoded], match.make, branch.matched, *answers, run.matching, plan.weights)
    n_sampled = run.decoding.samples.n_prompts if branch.blocks else 0
    evidence = (branch.setting, branch.facts, branch.prompts, branch.matched, n_sampled)
    decoded_twice = (branch.greedy, branch.canary)
    return _task([matched], aggregate.make, branch.metrics, *evidence, *decoded_twice)


def _task(after: Sequence[Any], make: Callable[..., None], artifact: Artifact, *inputs: Any) -> Any:
    import ray

    return ray.remote(_make).remote(make, artifact, inputs, *after)


def _make(
    make: Callable[..., None], artifact: Artifact, inputs: tuple[Any, ...], *_after: None
) -> None:
    if not artifact.is_complete():
        with timed(artifact):
            make(artifact, *inputs)

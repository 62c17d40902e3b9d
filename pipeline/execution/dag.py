"""The Ray tasks that make the artifacts of a plan that are not there yet.

Ray's own task graph is the DAG: a step is a task that waits for the futures of its inputs. One
pool of engines answers for all steps that have a question, so that a model is loaded once.
"""

from collections.abc import Mapping
from typing import Any

from factsweep.pipeline.execution.cluster import beside_driver
from factsweep.pipeline.execution.plan import Plan, Step
from factsweep.pipeline.execution.pool import decode_all
from factsweep.pipeline.execution.tasks import Tasks
from factsweep.pipeline.storage.lease import Lease


def submit(plan: Plan, tally: Any, leases: Mapping[str, Lease]) -> list[Any]:
    """Start all that is missing, under its leases; returns the futures of the last steps.

    A step whose artifact is complete is not run, and a task starts when its inputs are complete.
    """
    import ray

    steps, futures = plan.steps, dict[str, Any]()
    asked = [step for step in steps if step.question is not None]

    def future(step: Step) -> Any:
        folder = step.artifact.folder
        if folder not in futures and step.stage is None:
            # All questions are one task: it waits for what any of them waits for.
            inputs = {each.artifact.folder: each for one in asked for each in one.after}
            beside = ray.remote(num_cpus=0, scheduling_strategy=beside_driver())
            done = beside(decode_all).remote(plan, tally, leases, *map(future, inputs.values()))
            futures.update(dict.fromkeys((one.artifact.folder for one in asked), done))
        elif folder not in futures:
            lease = leases.get(folder)
            futures[folder] = ray.remote(_run).remote(step, lease, *map(future, step.after))
        return futures[folder]

    for step in steps:
        future(step)
    return [futures[branch.steps[-1].artifact.folder] for branch in plan.branches]


def _run(step: Step, lease: Lease | None, *_after: None) -> None:
    step.run(lease, Tasks(step.check))

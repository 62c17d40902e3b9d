"""The Ray tasks that make the artifacts of a plan that are not there yet.

Ray's own task graph is the DAG: a step is a task that waits for the futures of its inputs. One
pool of engines answers for all steps that have a question, so that a model is loaded once. One
process measures what is being answered. A large step hands its parts out (`tasks.py`).
"""

from collections.abc import Mapping
from typing import Any

from factsweep.pipeline.execution import ahead
from factsweep.pipeline.execution.cluster import beside_driver, computes_on_cores
from factsweep.pipeline.execution.plan import Branch, Plan
from factsweep.pipeline.execution.pool import decode_all
from factsweep.pipeline.execution.step import Step
from factsweep.pipeline.execution.tasks import Tasks
from factsweep.pipeline.storage.lease import Lease


def submit(plan: Plan, tally: Any, leases: Mapping[str, Lease]) -> list[Any]:
    """Start all that is missing, under its leases; returns the futures of what ends last."""
    import ray

    steps, futures = plan.steps, dict[str, Any]()
    asked = [step for step in steps if step.question is not None]
    # All questions are one task: it waits for what any of them waits for.
    inputs = {each.artifact.folder: each for one in asked for each in one.after}

    def future(step: Step) -> Any:
        folder = step.artifact.folder
        if folder not in futures and step.stage is None:
            beside = ray.remote(num_cpus=0, scheduling_strategy=beside_driver())
            done = beside(decode_all).remote(plan, tally, leases, *map(future, inputs.values()))
            futures.update(dict.fromkeys((one.artifact.folder for one in asked), done))
        elif folder not in futures:
            lease = leases.get(folder)
            futures[folder] = ray.remote(_run).remote(step, lease, *map(future, step.after))
        return futures[folder]

    if measured := [branch for branch in plan.branches if _is_measured_ahead(plan, branch)]:
        answered = future(asked[0])
        done = ray.remote(num_cpus=0)(ahead.measure).remote(
            measured, leases, [answered], *map(future, inputs.values())
        )
        of = (each for branch in measured for each in (branch.matched, branch.metrics))
        futures.update(dict.fromkeys((each.folder for each in of), done))
    last = [future(branch.steps[-1]) for branch in plan.branches]
    return list(dict.fromkeys([*last, *(future(step) for step in asked[:1])]))


def _is_measured_ahead(plan: Plan, branch: Branch) -> bool:
    """Whether a setting is measured while it is answered: not on cores that the engine wants."""
    if branch.chosen is not None or computes_on_cores(plan.run):
        return False
    return any(not artifact.is_complete() for artifact, _ in branch.asked())


def _run(step: Step, lease: Lease | None, *_after: None) -> None:
    step.run(lease, Tasks(step.check))

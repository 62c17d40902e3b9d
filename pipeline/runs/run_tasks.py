"""Runs the missing steps of a plan as Ray tasks.

Ray's task graph is the DAG: a step is a task that waits for the futures of its inputs. One pool of
engines answers the questions of all steps, and starts with the first setting whose prompts are
complete; one task measures each setting when it is answered. Large steps share out parts (`Tasks`).

Import this module only to compute something: it imports Ray, which takes a third of a second.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from factsweep.operators.errors import DecodingError, FactsweepError, reason
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import computes_on_cores
from factsweep.pipeline.cluster.ray_cluster import beside_driver
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import progress, root_cause
from factsweep.pipeline.decoding.pool import Decoding, decode_all
from factsweep.pipeline.decoding.progress_counter import Loading, count_refused, tally_actor
from factsweep.pipeline.machine.logs import LOG, Meter
from factsweep.pipeline.runs import run_files, small_steps
from factsweep.pipeline.stages.plan import Branch, Plan
from factsweep.pipeline.stages.step import SingleProcess, Step
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lease import Lease, Writer
from factsweep.pipeline.storage.object_store import REFUSED

_LOOK_EVERY_S = 0.5
_STOP_WITHIN_S = 120.0
_LOGS_S = 15.0  # to fetch the logs of the engines
_MEASURE_EVERY_S = 2.0
Report = Callable[[], object] | None
R = TypeVar("R")
FEWEST = 200_000  # prompts: the start of tasks takes some seconds
# A task has one core, and libraries would start a thread for each core of its machine.
_ONE_THREAD = {"POLARS_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1"}


def follow(plan: Plan, writer: Writer) -> None:
    """Start the tasks, and show their progress until they end.

    Raises:
        FactsweepError: a task failed, or Ray did.
    """
    tally = tally_actor(plan.run.cluster)
    with Meter(f"decode {plan.run.model.name}") as meter:
        bar = progress.DecodingBar(meter, plan.run.cluster.start_s)
        readers = (bar, run_files.PulseWriter(plan.run), progress.Metrics(plan.run.name))
        REFUSED.report = partial(count_refused, tally)
        pending = submit(plan, tally, writer.leases)
        start = _Start(plan.run, tally)
        try:
            while pending:
                finished, pending = ray.wait(pending, timeout=_LOOK_EVERY_S)
                tally.drain_nodes.remote(cluster.list_draining_nodes())
                writer.check()
                counts, notes = ray.get(tally.read.remote())
                for reader in readers:
                    reader.show(counts)
                for note in notes:
                    meter.say(note)
                start.check(counts)
                ray.get(finished)
            small_steps.make_small_steps(plan, writer.leases)
        except ray.exceptions.RayTaskError as error:
            raise root_cause.find_task_error(error) from error
        except ray.exceptions.RayError as error:
            raise root_cause.wrap_ray_error(error) from error
        except KeyboardInterrupt:
            _stop_engines(pending, tally)
            raise
        finally:
            REFUSED.report = None
            bar.close()
            _copy_engine_logs(plan.run, tally)


def _copy_engine_logs(run: Run, tally: Any) -> None:
    """Copy the engines' logs next to that of the run; those on lost nodes are lost."""
    lost = []
    try:
        reads, remote = [], ray.remote(num_cpus=0, max_retries=0)(root_cause.read_log)
        for node, log in ray.get(tally.logs.remote(), timeout=_LOGS_S):
            place = NodeAffinitySchedulingStrategy(node, soft=False)
            reads.append(remote.options(scheduling_strategy=place).remote(Path(log)))
        if reads:
            ray.wait(reads, num_returns=len(reads), timeout=_LOGS_S)
        for number, read in enumerate(reads, 1):
            try:
                run_files.write_engine_log(run, number, ray.get(read, timeout=0))
            except ray.exceptions.RayError as error:
                lost.append(reason(error))
    except ray.exceptions.RayError as error:
        LOG.warning("the engines' logs cannot be kept (%s); see Ray's own.", reason(error))
    if lost:
        LOG.warning("%d of %d engines' logs cannot be read (%s).", len(lost), len(reads), lost[0])


class _Start:
    """The time limit for the first engine, and for each engine that loads since later."""

    def __init__(self, run: Run, tally: Any) -> None:
        self._run, self._tally = run, tally
        self._began: float | None = None
        self._is_ready = False

    def check(self, counts: Mapping[str, float]) -> None:
        """Raise a DecodingError on the state of the engines or the cluster if the time is over."""
        if counts.get("all_shards") and self._began is None:
            self._began = time.monotonic()
        limit_s = self._run.cluster.start_s
        self._is_ready = self._is_ready or bool(counts.get("started"))
        if self._is_ready or self._began is None or time.monotonic() - self._began <= limit_s:
            return
        loading: list[Loading] = ray.get(self._tally.loading.remote())
        if loading and loading[-1].seconds <= limit_s:
            return  # the newest engine has its own time
        if loading:
            state = (
                f"{len(loading)} loading the model. See what hangs in {loading[0].log} on "
                f"{cluster.host_name(loading[0].node)}"
            )
        elif self._run.cluster.autoscales:  # pods may wait for hours for nodes
            room = cluster.describe_room(self._run)
            LOG.warning("no worker has come for %g seconds: %s; still waiting.", limit_s, room)
            self._began = time.monotonic()
            return
        else:
            state = f"{cluster.describe_room(self._run)}. Free some, ask for less"
        error = DecodingError(
            f"no engine was ready after cluster.start_s={limit_s:g} seconds: {state}, or wait "
            "longer."
        )
        raise root_cause.add_log_lines(error, Path(loading[0].log)) if loading else error


def _stop_engines(pending: list[Any], tally: Any) -> None:
    """Have every engine publish its finished answers, unless Ray is stopped as well."""
    head = ray.get_runtime_context().gcs_address
    stopping = tally.stop.remote()
    ends_at, futures = time.monotonic() + _STOP_WITHIN_S, [stopping, *pending]
    while futures and time.monotonic() < ends_at:
        try:
            ended, futures = ray.wait(futures, num_returns=len(futures), timeout=_LOOK_EVERY_S)
            ray.get([future for future in ended if future == stopping])
            cause = cluster.connection_error(head, 1.0)
        except ray.exceptions.RayError as error:
            cause = reason(error)
        if cause is not None:
            LOG.warning(
                "Ray ended before its engines did (%s); their published answers are kept.", cause
            )
            return


def submit(plan: Plan, tally: Any, leases: Mapping[str, Lease]) -> list[Any]:
    """Start all missing steps under their leases; returns the futures that end last."""
    graph = _Graph(plan, leases, partial(count_refused, tally))
    # Nothing else runs while engines need the cores, or answer a part of the prompts.
    is_sequential = computes_on_cores(plan.run) or plan.run.budget is not None
    branches = [branch for branch in plan.branches if branch.lacks_answers()]
    are_written = all(branch.admitted.is_complete() for branch in branches)
    is_streamed = len(branches) > 1 and not are_written and not is_sequential
    answered = graph.decode(tally, graph.write_in_turn() if is_streamed else [])
    if small_steps.is_small(plan):
        return answered  # `follow` measures them
    if answered and branches and not is_sequential:
        graph.measure_when_answered(branches, answered)
    last = [graph.future(branch.steps[-1]) for branch in plan.branches]
    return list(dict.fromkeys([*answered, *last]))


def _count_refused_requests(report: Report, function: Callable[..., R], *args: Any) -> R:
    """Call the function of a task, and `report` requests that a store refuses meanwhile."""
    REFUSED.report = report
    return function(*args)


class _Graph:
    """The futures of steps, by the folder of their artifact."""

    def __init__(self, plan: Plan, leases: Mapping[str, Lease], report: Report) -> None:
        self._plan, self._leases, self._report = plan, leases, report
        self._futures: dict[str, Any] = {}

    def future(self, step: Step, *predecessors: Any, num_cpus: int = 1) -> Any:
        """The task of a step, after its inputs and the futures `predecessors`."""
        folder = step.artifact.folder
        if folder not in self._futures:
            inputs = self.unfinished(step.after, num_cpus=num_cpus)
            args = (step, self._leases.get(folder), num_cpus, *inputs, *predecessors)
            self._futures[folder] = ray.remote(num_cpus=num_cpus)(_count_refused_requests).remote(
                self._report, _run, *args
            )
        return self._futures[folder]

    def unfinished(self, steps: Iterable[Step], num_cpus: int = 1) -> list[Any]:
        """The tasks of steps, without those of complete ones: their processes would do nothing."""
        return [
            self.future(step, num_cpus=num_cpus)
            for step in steps
            if step.question is not None or not step.artifact.is_complete()
        ]

    def write_in_turn(self) -> list[Any]:
        """Write the prompts of one setting after the other; returns their futures.

        The tasks take no cores of Ray's, because waiting engines may hold all of them.
        """
        futures: list[Any] = []
        for branch in self._plan.branches:
            self.future(branch.step(branch.prompts), *futures[-1:], num_cpus=0)
            futures.append(self.future(branch.step(branch.admitted), num_cpus=0))
        return futures

    def decode(self, tally: Any, ready: list[Any]) -> list[Any]:
        """Start one task for all questions: after all prompts, or as each setting is `ready`."""
        steps = [step for step in self._plan.steps if step.question is not None]
        if not steps:
            return []
        inputs = {source.artifact.folder: source for step in steps for source in step.after}
        prompts = [] if ready else self.unfinished(inputs.values())
        artifacts = [step.artifact for step in steps]
        args = (self._plan, tally, self._leases, ready, *prompts)
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 3}  # as a task's
        host = ray.remote(scheduling_strategy=beside_driver(), **options)(Decoding)
        if (decoding := cluster.shared_actor(host.remote)) is None:
            return [self._start_beside_driver(artifacts, decode_all, *args)]
        future = decoding.decode_all.remote(self._report, *args)
        self._futures |= {artifact.folder: future for artifact in artifacts}
        return [future]

    def measure_when_answered(self, branches: Sequence[Branch], answered: list[Any]) -> None:
        """Start one task on the driver's node that measures each setting when it is answered."""
        artifacts = [artifact for b in branches for artifact in (b.matched, b.metrics)]
        self._start_beside_driver(artifacts, measure, branches, self._leases, answered)

    def _start_beside_driver(
        self, artifacts: Sequence[Artifact], function: Callable[..., None], *args: Any
    ) -> Any:
        """Start a task that makes some artifacts, on the driver's node; returns its future."""
        remote = ray.remote(num_cpus=0, scheduling_strategy=beside_driver())
        future = remote(_count_refused_requests).remote(self._report, function, *args)
        self._futures |= {artifact.folder: future for artifact in artifacts}
        return future


def measure(
    branches: Sequence[Branch], leases: Mapping[str, Lease], answered: Sequence[Any]
) -> None:
    """Match and measure each setting once its prompts are answered; a Ray task.

    `answered` is the future of all answers. Errors are raised after the last answer, so that they
    do not stop the engines.
    """
    waiting, failed = list(branches), list[Branch]()
    while waiting:
        finished, _ = ray.wait(list(answered), timeout=_MEASURE_EVERY_S)
        ray.get(finished)  # raises if the engines ended with an error
        ready = [b for b in waiting if finished or all(a.is_complete() for a in b.list_outputs())]
        for branch in ready:
            waiting.remove(branch)
            try:
                _measure_branch(branch, leases)
            except FactsweepError:
                failed.append(branch)
    ray.get(list(answered))
    for branch in failed:
        _measure_branch(branch, leases)


def _measure_branch(branch: Branch, leases: Mapping[str, Lease]) -> None:
    for artifact in (branch.matched, branch.metrics):
        step = branch.step(artifact)
        step.run(leases.get(artifact.folder), Tasks(step.check, num_cpus=0))


def _run(step: Step, lease: Lease | None, num_cpus: int, *_after: None) -> None:
    step.run(lease, Tasks(step.check, num_cpus=num_cpus))


class Tasks:
    """Shares parts out to Ray tasks, one per core; few parts stay in this process.

    Each task takes `num_cpus` cores, and calls `check` on its machine first. All are spread over
    the nodes. Ray restarts a task whose machine is lost; `work` skips published parts.
    """

    def __init__(self, check: Callable[[], None], fewest: int = FEWEST, num_cpus: int = 1) -> None:
        self.core_seconds = 0.0
        self._check = check
        self._num_cpus = num_cpus
        self._fewest = fewest

    def __call__(self, work: Callable[[Sequence[str]], None], parts: Mapping[str, int]) -> None:
        """Have `work` make and publish all parts, and wait for the end."""
        is_small = sum(parts.values()) < self._fewest
        n_cores = 1 if is_small else int(ray.cluster_resources().get("CPU", 1))
        names_by_task = shares(parts, n_cores)
        if len(names_by_task) < 2:
            SingleProcess()(work, parts)
            return
        options = {"num_cpus": self._num_cpus, "scheduling_strategy": "SPREAD"}
        task = ray.remote(**options, runtime_env={"env_vars": _ONE_THREAD})(_count_refused_requests)
        pending: list[Any] = [
            task.remote(REFUSED.report, _make, self._check, work, names) for names in names_by_task
        ]
        try:
            while pending:
                finished, pending = ray.wait(pending)
                self.core_seconds += sum(ray.get(finished))
        except ray.exceptions.RayTaskError as error:
            raise root_cause.find_task_error(error) from None
        except ray.exceptions.RayError as error:
            raise root_cause.wrap_ray_error(error) from error
        finally:
            for future in pending:
                ray.cancel(future)


def _make(
    check: Callable[[], None], work: Callable[[Sequence[str]], None], parts: Sequence[str]
) -> float:
    """Make some parts; returns the CPU seconds."""
    began = time.process_time()
    check()
    work(parts)
    return time.process_time() - began


def shares(parts: Mapping[str, int], n: int) -> list[list[str]]:
    """The parts in at most `n` shares of about the same size, the largest first in each.

    Source: Graham 1969, "Bounds on multiprocessing timing anomalies": longest processing time
    first.

    >>> shares({"a": 1, "b": 4, "c": 3, "d": 2}, 2)
    [['b', 'a'], ['c', 'd']]
    """
    names: list[list[str]] = [[] for _ in range(min(n, len(parts)))]
    sizes = [(0, share) for share in range(len(names))]
    for part in sorted(parts, key=lambda name: -parts[name]):
        size, share = sizes[0]
        heapq.heapreplace(sizes, (size + parts[part], share))
        names[share].append(part)
    return names

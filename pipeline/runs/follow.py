"""The Ray tasks that make what a plan lacks, from their start to their end; what ends them.

Ray's own task graph is the DAG: a step is a task that waits for the futures of its inputs. One
pool of engines answers for all steps that have a question, so that a model is loaded once. It
begins with the first setting whose prompts are there, and one process measures each setting as
soon as it is answered. A large step hands its parts out (`Tasks`).

Ray is imported here, which takes a third of a second: only where something is to be computed.
"""

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from factsweep.operators.errors import DecodingError, FactsweepError, InputError, reason
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import computes_on_cores
from factsweep.pipeline.cluster.ray_cluster import beside_driver
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import cause, progress
from factsweep.pipeline.decoding.pool import decode_all
from factsweep.pipeline.decoding.tally import Loading, tally_actor
from factsweep.pipeline.machine.logs import LOG, Meter
from factsweep.pipeline.runs import journal
from factsweep.pipeline.stages.plan import Branch, Plan
from factsweep.pipeline.stages.stage import Alone
from factsweep.pipeline.stages.step import Step
from factsweep.pipeline.storage.lease import Lease, Writer
from factsweep.pipeline.storage.object_store import REFUSED

_LOOK_EVERY_S = 0.5
_STOP_WITHIN_S = 60.0
_LOGS_S = 15.0  # to fetch the logs of the engines
_MEASURE_EVERY_S = 2.0
FEWEST = 200_000  # prompts: starting the tasks takes some seconds
# A task has one core, and libraries would start a thread for each core of its machine.
_ONE_THREAD = {"POLARS_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1"}


def follow(plan: Plan, writer: Writer) -> None:
    """Start the tasks and show how they get on; what ends them is an error of ours."""
    tally = tally_actor(plan.run.cluster)
    with Meter(f"decode {plan.run.model.name}", plan.run.log) as meter:
        bar = progress.Bar(meter, plan.run.cluster.start_s)
        readers = (bar, journal.Beat(plan.run), progress.Metrics(plan.run.name))
        counts: dict[str, float] = {}
        refused = REFUSED.times
        pending = submit(plan, tally, writer.leases)
        start = _Start(plan.run, tally)
        try:
            while pending:
                done, pending = ray.wait(pending, timeout=_LOOK_EVERY_S)
                tally.leave.remote(cluster.draining_nodes())
                writer.check()
                counts, notes = _read(tally, refused)
                for reader in readers:
                    reader.show(counts)
                for note in notes:
                    meter.say(note)
                start.check(counts)
                ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise cause.of_task(error) from error
        except ray.exceptions.RayError as error:
            raise cause.of_ray(error) from error
        except KeyboardInterrupt:
            _stop(pending, tally)
            raise
        finally:
            bar.close()
            _keep_logs(plan.run, tally)


def _keep_logs(settings: Run, tally: Any) -> None:
    """Put the engines' logs beside that of the run; one on a node that is gone is lost with it."""
    lost = []
    try:
        known = ray.get(tally.logs.remote(), timeout=_LOGS_S)
        reads = [
            ray.remote(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )(cause.whole_log).remote(Path(log))
            for node, log in known
        ]
        if reads:
            ray.wait(reads, num_returns=len(reads), timeout=_LOGS_S)
        for number, read in enumerate(reads, 1):
            try:
                journal.keep(settings, number, ray.get(read, timeout=0))
            except ray.exceptions.RayError as error:
                lost.append(reason(error))
    except (ray.exceptions.RayError, InputError) as error:
        LOG.warning("the engines' logs cannot be kept (%s); see Ray's own.", reason(error))
    if lost:
        LOG.warning("%d of %d engines' logs cannot be read (%s).", len(lost), len(reads), lost[0])


def _read(tally: Any, refused: int) -> tuple[dict[str, float], list[str]]:
    """The counts, with the driver's own refusals of a store beyond so many; what engines say."""
    counts: dict[str, float]
    counts, notes = ray.get(tally.read.remote())
    counts["store_refused"] = counts.get("store_refused", 0) + REFUSED.times - refused
    return counts, notes


class _Start:
    """The time in which a first engine must be there, and that which each then has to load."""

    def __init__(self, settings: Run, tally: Any) -> None:
        self._settings = settings
        self._tally = tally
        self._began: float | None = None
        self._ready = False

    def check(self, counts: dict[str, float]) -> None:
        """Refuse to wait for ever.

        Raises:
            DecodingError: it says what engines do, or what was asked of the cluster.
        """
        if counts.get("all_shards") and self._began is None:
            self._began = time.monotonic()
        limit_s = self._settings.cluster.start_s
        self._ready = self._ready or bool(counts.get("started"))
        late = self._began is not None and time.monotonic() - self._began > limit_s
        if late and not self._ready:
            loading: list[Loading] = ray.get(self._tally.loading.remote())
            if loading and loading[-1].seconds <= limit_s:
                return  # it came later than the others, and has its own time
            if loading:
                found = (
                    f"{len(loading)} loading the model. See what hangs in {loading[0].log} on "
                    f"{cluster.host(loading[0].node)}"
                )
            elif self._settings.cluster.autoscales:
                # Pods may wait for hours for nodes, and are worth it.
                found = cluster.room(self._settings)
                LOG.warning("no worker has come for %g seconds: %s; it waits on.", limit_s, found)
                self._began = time.monotonic()
                return
            else:
                found = f"{cluster.room(self._settings)}. Free some, ask for less"
            error = DecodingError(
                f"no engine was ready after cluster.start_s={limit_s:g} seconds: {found}, or wait "
                "longer."
            )
            raise cause.with_log(error, Path(loading[0].log)) if loading else error


def _stop(pending: list[Any], tally: Any) -> None:
    """Let every engine publish what it has finished; where Ray is gone, they have ended."""
    try:
        ray.get(tally.stop.remote(), timeout=_STOP_WITHIN_S)
        ray.wait(pending, num_returns=len(pending), timeout=_STOP_WITHIN_S)
    except ray.exceptions.RayError as error:
        why = reason(error)
        LOG.warning("Ray ended before its engines did (%s); what they published is kept.", why)


def submit(plan: Plan, tally: Any, leases: Mapping[str, Lease]) -> list[Any]:
    """Start all that is missing, under its leases; returns the futures of what ends last.

    Each waits for the engines, as does who stops them.
    """
    graph = _Graph(plan, leases)
    begun = graph.write_in_turn() if _is_streamed(plan) else []
    answered = graph.decode(tally, begun)
    if answered and not _is_one_after_the_other(plan):
        graph.measure_when_answered(answered)
    last = [graph.future(branch.steps[-1]) for branch in plan.branches]
    return list(dict.fromkeys([*answered, *last]))


def _is_one_after_the_other(plan: Plan) -> bool:
    """Whether nothing is made while engines answer: where they want the cores, or ask a part."""
    return computes_on_cores(plan.run) or plan.run.budget is not None


def _is_streamed(plan: Plan) -> bool:
    """Whether the first settings are answered while others are still written."""
    open_ = [branch for branch in plan.branches if branch.lacks_answers()]
    written = all(each.admitted.is_complete() for each in open_)
    return len(open_) > 1 and not written and not _is_one_after_the_other(plan)


class _Graph:
    """The futures of steps, by the folder of what they make."""

    def __init__(self, plan: Plan, leases: Mapping[str, Lease]) -> None:
        self._plan, self._leases = plan, leases
        self._futures: dict[str, Any] = {}

    def future(self, step: Step, *before: Any, num_cpus: int = 1) -> Any:
        """The task that makes what a step makes, after its inputs and what else is to be first."""
        folder = step.artifact.folder
        if folder not in self._futures:
            inputs = (self.future(each, num_cpus=num_cpus) for each in step.after)
            told = (step, self._leases.get(folder), num_cpus, *inputs, *before)
            self._futures[folder] = ray.remote(num_cpus=num_cpus)(_run).remote(*told)
        return self._futures[folder]

    def write_in_turn(self) -> list[Any]:
        """The prompts of each setting after those of the one before, whoever has the cores.

        Engines wait for them, and may hold every core that Ray counts.
        """
        found: list[Any] = []
        for branch in self._plan.branches:
            self.future(branch.step(branch.prompts), *found[-1:], num_cpus=0)
            found.append(self.future(branch.step(branch.admitted), num_cpus=0))
        return found

    def decode(self, tally: Any, begun: list[Any]) -> list[Any]:
        """All questions are one task: of all prompts, or as those `begun` are written."""
        asked = [step for step in self._plan.steps if step.question is not None]
        if not asked:
            return []
        inputs = {each.artifact.folder: each for step in asked for each in step.after}
        wanted = [] if begun else list(map(self.future, inputs.values()))
        beside = ray.remote(num_cpus=0, scheduling_strategy=beside_driver())
        done = beside(decode_all).remote(self._plan, tally, self._leases, begun, *wanted)
        self._futures.update(dict.fromkeys((each.artifact.folder for each in asked), done))
        return [done]

    def measure_when_answered(self, answered: list[Any]) -> None:
        """Measure each setting as soon as it is answered: one task, on the driver's node."""
        branches = [branch for branch in self._plan.branches if branch.lacks_answers()]
        if branches:
            remote = ray.remote(num_cpus=0, scheduling_strategy=beside_driver())
            future = remote(measure).remote(branches, self._leases, answered)
            artifacts = (artifact for b in branches for artifact in (b.matched, b.metrics))
            self._futures.update(dict.fromkeys((a.folder for a in artifacts), future))


def measure(
    branches: Sequence[Branch], leases: Mapping[str, Lease], answered: Sequence[Any]
) -> None:
    """Match and measure each setting once all its prompts are answered; a Ray task.

    `answered` is the future of all answers. An error of a setting is raised after the last answer,
    so that it does not stop the engines.
    """
    waiting, failed = list(branches), list[Branch]()
    while waiting:
        done, _ = ray.wait(list(answered), timeout=_MEASURE_EVERY_S)
        ray.get(done)  # raises if the engines ended with an error
        ready = [b for b in waiting if done or all(a.is_complete() for a in b.answered())]
        for branch in ready:
            waiting.remove(branch)
            try:
                _measure(branch, leases)
            except FactsweepError:
                failed.append(branch)
    ray.get(list(answered))
    for branch in failed:
        _measure(branch, leases)


def _measure(branch: Branch, leases: Mapping[str, Lease]) -> None:
    for artifact in (branch.matched, branch.metrics):
        step = branch.step(artifact)
        step.run(leases.get(artifact.folder), Tasks(step.check, num_cpus=0))


def _run(step: Step, lease: Lease | None, num_cpus: int, *_after: None) -> None:
    step.run(lease, Tasks(step.check, num_cpus=num_cpus))


class Tasks:
    """Shares parts out to Ray tasks, one per core; where there is little to do, to none.

    Each asks for `num_cpus` cores. Those that ask for none would all be put on one node, so all are
    spread.

    `check` is called on the machine of each task before it makes anything. A task whose machine is
    lost is started again by Ray; `work` finds what the first one published.
    """

    def __init__(self, check: Callable[[], None], fewest: int = FEWEST, num_cpus: int = 1) -> None:
        self.core_seconds = 0.0
        self._check = check
        self._num_cpus = num_cpus
        self._fewest = fewest

    def __call__(self, work: Callable[[Sequence[str]], None], parts: Mapping[str, int]) -> None:
        """Have `work` make and publish all parts, and wait for it."""
        few = sum(parts.values()) < self._fewest
        n_cores = 1 if few else int(ray.cluster_resources().get("CPU", 1))
        found = shares(parts, n_cores)
        if len(found) < 2:
            Alone()(work, parts)
            return
        beside = {"num_cpus": self._num_cpus, "scheduling_strategy": "SPREAD"}
        task = ray.remote(**beside, runtime_env={"env_vars": _ONE_THREAD})(_work)
        pending: list[Any] = [task.remote(self._check, work, each) for each in found]
        try:
            while pending:
                done, pending = ray.wait(pending)
                self.core_seconds += sum(ray.get(done))
        except ray.exceptions.RayTaskError as error:
            raise cause.of_task(error) from None
        except ray.exceptions.RayError as error:
            raise cause.of_ray(error) from error
        finally:
            for each in pending:
                ray.cancel(each)


def _work(
    check: Callable[[], None], work: Callable[[Sequence[str]], None], parts: Sequence[str]
) -> float:
    """Make some parts; returns the seconds of CPU that it took."""
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
    found: list[list[str]] = [[] for _ in range(min(n, len(parts)))]
    sizes = [(0, share) for share in range(len(found))]
    for part in sorted(parts, key=lambda each: -parts[each]):
        size, share = sizes[0]
        heapq.heapreplace(sizes, (size + parts[part], share))
        found[share].append(part)
    return found

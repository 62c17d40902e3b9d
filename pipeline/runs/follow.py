"""The tasks of a run, from their start to their end: what they say, and what ends them.

Ray is imported here, which takes a third of a second: only where something is to be computed.
"""

import time
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from factsweep.operators.errors import DecodingError, InputError, reason
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import cause, progress
from factsweep.pipeline.decoding.tally import Loading, tally_actor
from factsweep.pipeline.machine.logs import LOG, Meter
from factsweep.pipeline.runs import dag, journal
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.lease import Writer
from factsweep.pipeline.storage.object_store import REFUSED

_LOOK_EVERY_S = 0.5
_STOP_WITHIN_S = 60.0
_LOGS_S = 15.0  # to fetch the logs of the engines


def follow(plan: Plan, writer: Writer) -> None:
    """Start the tasks and show how they get on; what ends them is an error of ours."""
    tally = tally_actor(plan.run.cluster)
    with Meter(f"decode {plan.run.model.name}", plan.run.log) as meter:
        bar = progress.Bar(meter, plan.run.cluster.start_s)
        readers = (bar, journal.Beat(plan.run), progress.Metrics(plan.run.name))
        counts: dict[str, float] = {}
        refused = REFUSED.times
        pending = dag.submit(plan, tally, writer.leases)
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
        reads = [_read_there(node, log) for node, log in known]
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


def _read_there(node: str, log: str) -> Any:
    """The log of an engine, from its node; a future."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    read = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(cause.whole_log)
    return read.remote(Path(log))


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

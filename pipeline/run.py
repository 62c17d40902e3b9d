"""run: compute what is missing, then write the results."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from factsweep.operators.errors import DamagedFileError, DecodingError, InputError, reason
from factsweep.operators.methods.method import Method
from factsweep.operators.wording import listed
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.costs import rates
from factsweep.pipeline.doctor import examination
from factsweep.pipeline.execution import cluster, dag, progress, share
from factsweep.pipeline.execution.faults import cause, head, leaving
from factsweep.pipeline.execution.faults.lives import Loading
from factsweep.pipeline.execution.faults.repair import repair, settle
from factsweep.pipeline.execution.plan import Plan, planned, warnings
from factsweep.pipeline.execution.tally import tally_actor
from factsweep.pipeline.live import journal, pulse
from factsweep.pipeline.live.measuring import Measures, Measuring
from factsweep.pipeline.live.page import LivePage
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.machine.meter import Meter
from factsweep.pipeline.results import past, record, report
from factsweep.pipeline.results.doubts import differences
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.storage import lease, uses
from factsweep.pipeline.storage.stores import s3_client
from factsweep.pipeline.storage.uses import Use

_LOOK_EVERY_S = 0.5
_STOP_WITHIN_S = 60.0
_LOGS_S = 15.0  # to fetch the logs of the engines


def run(settings: Run, others: Iterable[Plan] = ()) -> pl.DataFrame:
    """Do all that a run asks for; returns its metrics.

    What turns out to be damaged is set aside and computed anew. Where something is missing, the
    engines answer for `others`, too, which have other adapters of the same base.

    Raises:
        InputError: something that was given is wrong, or another driver holds an artifact.
        DecodingError: too many prompts have no answer; the results are written all the same.
        StoppedError: the user asked to stop; the next run resumes.
    """
    check_asks(settings)
    return measured(settings, partial(compute, others=others))


def check_asks(settings: Run) -> None:
    """Refuse to ask an engine for answers that are given.

    Raises:
        InputError: it says which verb takes them.
    """
    if settings.answers is not None:
        raise InputError("run asks an engine; measure a file with `factsweep score answers=…`.")


def measured(settings: Run, make: Callable[[Plan], None]) -> pl.DataFrame:
    """The metrics of a run; `make` computes what is missing of its plan.

    Raises:
        InputError: something that was given is wrong, or is damaged again and again.
        DecodingError: too many prompts have no answer; the results are written all the same.
    """
    if settings.budget is not None:
        raise InputError(f"budget={settings.budget}: this is what `estimate` takes; leave it out.")
    past.check_free(settings.results, settings.name)
    plan = planned(settings)
    with journal.kept(settings):
        metrics = _measured(plan, make)
        check_failed(plan)
        return metrics


def _measured(plan: Plan, make: Callable[[Plan], None]) -> pl.DataFrame:
    """Make what is missing and write the results; what is damaged is set aside, and made anew."""
    started, settings = time.monotonic(), plan.run
    if (replaced := record.replaced(report.folder(settings), plan)) is not None:
        LOG.warning("%s", replaced)
    use = uses.begun(settings.name, settings.results, [s.artifact.folder for s in plan.steps])
    pins = record.pins(record.recorded(report.folder(settings), plan))
    renewed = Counter[str]()
    while True:
        try:
            known = _completed(plan, use, partial(settle, plan, pins, renewed), make)
            if settings.answers is None:
                rates.publish(plan)
            say_contradictions(plan)
            say_served(plan)
            metrics = report.write(plan, {"total": round(time.monotonic() - started, 1)}, known)
            _note_end(plan, use)
            if known is not None:
                LOG.info("done; results in %s", report.folder(settings).where())
            return metrics
        except DamagedFileError as damage:
            repair(plan, damage, renewed)


def _note_end(plan: Plan, use: Use) -> None:
    """Note that the results are there; a store that may only be read knows nothing of the run."""
    try:
        uses.note(plan.store, uses.ended(use))
    except InputError as error:
        LOG.warning("%s So `factsweep prune` does not know of this run.", error)


def say_warnings(plan: Plan) -> None:
    """Say what the plan costs or risks here."""
    for each in warnings(plan):
        LOG.warning("%s", each)


def say_served(plan: Plan) -> None:
    """Say what a server did otherwise than an engine here."""
    if plan.run.answers is None and plan.run.engine.name == "endpoint":
        for line in differences(plan.run.model.name, plan.answered):
            LOG.warning("%s", line)


def say_contradictions(plan: Plan) -> None:
    """Say which rows of the data set cannot all be right, and what was done."""
    for line in facts_stage.contradictions(plan.branches[0].facts):
        LOG.warning("%s: %s", plan.run.benchmark.name, line)


def _completed(
    plan: Plan, use: Use, is_settled: Callable[[], bool], make: Callable[[Plan], None]
) -> pl.DataFrame | None:
    """Make what is missing; returns the rates that were known before, null if nothing was."""
    if is_settled():
        return None
    uses.note(plan.store, use)
    journal.begin(plan)
    known = None if plan.run.answers else rates.known(plan)
    say_warnings(plan)
    make(plan)
    while not is_settled():  # what was made of something that came out otherwise this time
        make(plan)
    return known


def compute(
    plan: Plan, measures: type[Measures[Any]] = Measuring, others: Iterable[Plan] = ()
) -> None:
    """Make every artifact of the plan that is missing; its page shows what `measures` finds."""
    plan = replace(plan, run=share.placed(plan.run))
    examination.refused(plan.run)
    if together := list(others):
        names = listed([each.run.model.name for each in together])
        LOG.info("%s is loaded once, and also answers for %s", plan.run.model.id, names)
        plan = plan.beside(together)
    wait = plan.run.cluster.when_held == "wait"
    shared = {step.artifact.folder for step in plan.steps if step.question is None}
    with lease.held(
        plan.store, plan.missing(), wait=wait, shared=shared, say=pulse.Beat(plan.run).waits
    ) as writer:
        pulse.write(plan.run, "running", {})
        with (
            cluster.started(plan.run, offline=plan.weights.offline),
            head.watched(ray.get_runtime_context().gcs_address, partial(journal.cut, plan.run)),
        ):
            _follow(plan, writer, LivePage(plan, measures))


def _follow(plan: Plan, writer: lease.Writer, live: LivePage) -> None:
    """Start the tasks and show how they get on."""
    tally = tally_actor(plan.run.cluster)
    with Meter(f"decode {plan.run.model.name}", plan.run.log) as meter:
        bar = progress.Bar(meter, plan.run.cluster.start_s)
        readers = (bar, pulse.Beat(plan.run), progress.Metrics(plan.run.name), live)
        counts: dict[str, float] = {}
        refused = s3_client.REFUSED.times
        if live.where:
            meter.say(f"what is done so far: {live.where}")
        pending = dag.submit(plan, tally, writer.leases)
        start = _Start(plan.run, tally)
        try:
            while pending:
                done, pending = ray.wait(pending, timeout=_LOOK_EVERY_S)
                tally.leave.remote(leaving.draining())
                writer.check()
                counts, notes = _read(tally, refused)
                for reader in readers:
                    reader.show(counts)
                for text in (*notes, *live.news()):
                    meter.say(text)
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
            live.close(counts)
            _keep_logs(plan.run, tally)
            _keep_spans(plan.run, tally)


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


def _keep_spans(settings: Run, tally: Any) -> None:
    """Note which GPUs its engines held, and what they did there."""
    try:
        spans = ray.get(tally.spans.remote(), timeout=_LOGS_S)
        there = sum(ray.cluster_resources().get("GPU", 0) for _ in spans[:1])
        journal.keep_spans(settings, spans, int(there))
    except (ray.exceptions.RayError, InputError) as error:
        LOG.warning("what the GPUs did cannot be noted (%s).", reason(error))


def _read_there(node: str, log: str) -> Any:
    """The log of an engine, from its node; a future."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    read = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(cause.whole_log)
    return read.remote(Path(log))


def _read(tally: Any, refused: int) -> tuple[dict[str, float], list[str]]:
    """The counts, with the driver's own refusals of a store beyond so many; what engines say."""
    counts: dict[str, float]
    counts, notes = ray.get(tally.read.remote())
    counts["store_refused"] = counts.get("store_refused", 0) + s3_client.REFUSED.times - refused
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
            loading: list[Loading] = ray.get(self._tally.lives.remote("loading"))
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
        ray.wait(pending, timeout=_STOP_WITHIN_S)
    except ray.exceptions.RayError as error:
        why = reason(error)
        LOG.warning("Ray ended before its engines did (%s); what they published is kept.", why)


def check_failed(plan: Plan) -> None:
    """Refuse a run in which more prompts have no answer than the configuration allows.

    Raises:
        DecodingError: it names the setting and where the reasons stand.
    """
    limit = plan.run.decoding.max_failed_share
    for branch in plan.branches:
        metrics = branch.metrics.read_all("metrics")
        there = (each for each in (branch.admitted, branch.answers) if each.is_complete())
        failed_in = [e for e in there if any(e.rows("errors").values())] or [branch.admitted]
        reasons = " and ".join(f"{each.store.where(each.folder)}/errors" for each in failed_in)
        if metrics.is_empty():
            raise DecodingError(
                f"{branch.setting.name}: no prompt has an answer, so there is nothing to measure; "
                f"the reasons are in {reasons}."
            )
        _check_order(plan.run, metrics)
        n, failed = answered(metrics, plan.run.method)
        if failed > limit * (n + failed):
            raise DecodingError(
                f"{branch.setting.name}: {failed:,} of {n + failed:,} prompts have no answer, more "
                f"than decoding.max_failed_share={limit} allows; their reasons are in "
                f"{reasons}. Everything else is complete."
            )


def answered(metrics: pl.DataFrame, method: Method) -> tuple[int, int]:
    """How many prompts of a setting have an answer, and how many have none."""
    row = metrics.filter(metric=method.measure.main_metric).filter(pl.col("slice").is_null())
    n, failed = row.select("n", "n_failed").row(0)
    return int(n), int(failed)


def _check_order(settings: Run, metrics: pl.DataFrame) -> None:
    """Refuse scores that depend on the order in which they were asked for."""
    found = metrics.filter(metric="permutation_difference")["value"].max()
    limit = settings.decoding.max_permutation_difference
    if isinstance(found, float) and found > limit:
        raise DecodingError(
            f"the same texts, scored in another order, differ by up to {found:.3g} nats, more than "
            f"decoding.max_permutation_difference={limit:g}; choose another decoding.scorer or "
            "model.dtype=float32. Everything else is complete."
        )

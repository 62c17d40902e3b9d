"""run and score: compute missing or damaged artifacts, then write the results."""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from factsweep.operators.errors import DamagedFileError, DecodingError, InputError, printable
from factsweep.operators.methods.method import FILL
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import costs
from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.logs import LOG, may_fail
from factsweep.pipeline.results import past_runs, report, run_record
from factsweep.pipeline.results.run_record import PROGRESS
from factsweep.pipeline.results.run_warnings import warn_of_server
from factsweep.pipeline.runs import run_files, sampling
from factsweep.pipeline.runs.inventory import RunUse, begin_use, end_use, note_use
from factsweep.pipeline.runs.preflight import check_plan
from factsweep.pipeline.runs.small_steps import make_small_steps
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.storage import integrity, lease
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import Finding
from factsweep.pipeline.storage.store import Store

Result = TypeVar("Result")
_MOST = 3  # quarantines of a file in a run; one that is damaged again has another cause


def run(settings: Run) -> pl.DataFrame:
    """Compute a run, and return its metrics; damaged files are quarantined and computed again.

    Raises:
        InputError: the configuration is wrong, or another driver holds an artifact.
        DecodingError: too many prompts have no answer; the results are written all the same.
        StoppedError: the user asked to stop; the next run resumes.
    """
    check_asks(settings)
    return measure_run(settings, compute)


def score(run: Run) -> pl.DataFrame:
    """The metrics of the answers in `answers=`; a prompt without a row counts as failed.

    Raises:
        InputError: no file, a missing column, an unknown or repeated prompt_id, several settings.
    """
    check_answers(run)
    return measure_run(run, make_given)


def check_answers(run: Run) -> None:
    """Raise an InputError if the given answers cannot be measured."""
    if run.answers is None:
        raise InputError("score needs answers=<a JSONL or Parquet file, docs/adding.md>.")
    if run.method.ask.ability == FILL:
        raise InputError(f"score measures no encoder's answers; model={run.model.name} is one.")
    if len(run.settings) != 1:
        raise InputError("score measures one setting; name it with prompt=….")
    if not Path(run.answers).is_file():
        raise InputError(f"answers={run.answers} is no file; give a JSONL or Parquet file.")


def check_asks(settings: Run) -> None:
    """Raise an InputError if the answers are given: `score` takes them."""
    if settings.answers is not None:
        raise InputError("run asks an engine; measure a file with `factsweep score answers=…`.")


def measure_run(settings: Run, make: Callable[[Plan], None]) -> pl.DataFrame:
    """The metrics of a run; `make` computes the missing artifacts of its plan.

    Raises:
        InputError: the configuration is wrong, or a file is damaged again and again.
        DecodingError: too many prompts have no answer; the results are written all the same.
    """
    if settings.budget is not None:
        raise InputError(f"budget={settings.budget}: this is what `estimate` takes; leave it out.")
    past_runs.check_free(settings.results, settings.name)
    plan, started = build_plan(settings), time.monotonic()
    sentences = check_plan(plan)
    with run_files.log_run(plan.run):
        is_new = False
        if settings.decoding.samples.until is not None:
            plan, is_new = _sample_until(plan, make, sentences)
        metrics = _make_and_measure(plan, make, sentences, started=started, is_new=is_new)
        check_failed(plan)
        return metrics


def _make_and_measure(
    plan: Plan,
    make: Callable[[Plan], None],
    sentences: Sequence[str],
    *,
    started: float,
    is_new: bool,
) -> pl.DataFrame:
    """Make missing artifacts and write the results; `is_new`: earlier looks made some."""
    settings, store, use = plan.run, Store(plan.run.folder), begin_use(plan)
    earlier = run_record.read_earlier(store)
    if (replaced := run_record.warn_of_replacement(store, earlier, plan)) is not None:
        LOG.warning("%s", replaced)

    def write(is_made: bool) -> tuple[pl.DataFrame, bool]:
        spent = costs.publish_rates(plan) if settings.answers is None else None
        seconds = {"total": round(time.monotonic() - started, 1)}
        is_any = is_made or is_new
        return report.write(plan, seconds, earlier, spent, is_new=is_any), is_any

    metrics, is_any = _make_until_settled(plan, make, sentences, use, write)
    with may_fail("its note for `factsweep prune`"):  # in a store that may only be read
        note_use(plan.store, end_use(use))
    if is_any:
        LOG.info("done; results in %s", store.where())
    return metrics


def _make_until_settled(
    plan: Plan,
    make: Callable[[Plan], None],
    sentences: Sequence[str],
    use: RunUse,
    read: Callable[[bool], Result],
) -> Result:
    """Make missing artifacts, then `read` (whether any was); damaged files are made again."""
    renewed = Counter[str]()
    is_settled = partial(quarantine_listed_damage, plan, renewed)
    while True:
        try:
            if is_made := not is_settled():
                note_use(plan.store, use)
                run_files.log_start(plan, sentences)
                make(plan)
                while not is_settled():  # an input was computed again, with other content
                    make(plan)
            return read(is_made)
        except DamagedFileError as damage:
            repair(plan, damage, renewed)


def _sample_until(
    plan: Plan, make: Callable[[Plan], None], sentences: Sequence[str]
) -> tuple[Plan, bool]:
    """The plan of as many blocks of samples as their target needs; whether any was made now."""
    samples, is_new = plan.run.decoding.samples, False
    for look_plan in sampling.plan_looks(plan):

        def read(is_made: bool, look_plan: Plan = look_plan) -> tuple[sampling.SampleLook, bool]:
            return sampling.read_look(look_plan), is_made

        look, is_made = _make_until_settled(look_plan, make, sentences, begin_use(look_plan), read)
        is_new |= is_made
        end = (f"samples.until={samples.until} is reached.",) if look.is_met else ()
        for sentence in (*look.sentences, *end):
            LOG.info("%s", sentence)
            logs.note(sentence)
        if look.is_met:
            return look_plan, is_new
    most = "samples.until=%s is not reached with decoding.samples.n_answers=%d, the most."
    LOG.warning(most, samples.until, samples.n_answers)
    return plan, is_new


def log_server_differences(plan: Plan) -> None:
    """Log the differences of a server from an engine here."""
    if plan.run.answers is None and plan.run.engine.name == "endpoint":
        for line in warn_of_server(plan.run.model.name, plan.outputs):
            LOG.warning("%s", line)


def compute(plan: Plan) -> None:
    """Make every missing artifact of the plan."""
    run, missing = plan.run, plan.missing()
    shared = {step.artifact.folder for step in plan.steps if step.question is None}
    wait, say = run.cluster.when_held == "wait", run_files.PulseWriter(run).report_wait
    with lease.hold_leases(plan.store, missing, wait=wait, shared=shared, say=say) as writer:
        run_files.write_pulse(run, "running", {})
        make_small_steps(plan, writer.leases)
        if not plan.missing():
            return
        import ray  # takes 0.3 s, which a run without decoding saves

        from factsweep.pipeline.runs.run_tasks import follow

        with cluster.start_ray(run, offline=plan.weights.offline):
            head = ray.get_runtime_context().gcs_address
            with cluster.watch_head(head, partial(run_files.log_failure, run)):
                follow(plan, writer)


def check_failed(plan: Plan) -> None:
    """Raise a DecodingError if more prompts failed than the configuration allows."""
    limit = plan.run.decoding.max_failed_share
    for branch in plan.branches:
        metrics = branch.metrics.read_all("metrics")
        answer_artifacts = [branch.admitted, branch.answers]
        if metrics.is_empty():
            raise DecodingError(
                f"{branch.setting.name}: no prompt has an answer, so there is nothing to measure; "
                f"{_describe_reasons(answer_artifacts)}."
            )
        _check_order(plan.run, metrics)
        n, failed = past_runs.count_answered(metrics, plan.run.method)
        blocks = [
            artifact
            for artifact in branch.extra_outputs
            if artifact.stage == "samples" and artifact.is_complete()
        ]
        n_sampled, n_lacking = (
            sum(sum(artifact.rows(table).values()) for artifact in blocks)
            for table in ("samples", "errors")
        )
        for noun, n_failed, n_asked, artifacts in (
            ("prompts", failed, n + failed, answer_artifacts),
            ("blocks of samples", n_lacking, n_sampled + n_lacking, blocks),
        ):
            if n_failed > limit * n_asked:
                raise DecodingError(
                    f"{branch.setting.name}: {n_failed:,} of {n_asked:,} {noun} have no answer, "
                    f"more than decoding.max_failed_share={limit} allows; "
                    f"{_describe_reasons(artifacts)}. Everything else is complete."
                )


def _describe_reasons(artifacts: Sequence[Artifact]) -> str:
    """The first reason of a failed prompt, and the folders of all reasons."""
    complete = [artifact for artifact in artifacts if artifact.is_complete()]
    failed = [artifact for artifact in complete if any(artifact.rows("errors").values())]
    rows = (rows for artifact in failed for rows in artifact.each("errors", ["reason", "detail"]))
    first_row = next((row for frame in rows for row in frame.head(1).iter_rows()), ())
    first = ": ".join(filter(None, first_row))
    named_artifacts = failed or artifacts[:1]
    folders = (f"{artifact.store.where(artifact.folder)}/errors" for artifact in named_artifacts)
    sentence = f"the reasons are in {' and '.join(folders)}"
    return f"the first has {printable(first)}, and {sentence}" if first else sentence


def _check_order(settings: Run, metrics: pl.DataFrame) -> None:
    difference = metrics.filter(metric="permutation_difference")["value"].max()
    limit = settings.decoding.max_permutation_difference
    if isinstance(difference, float) and difference > limit:
        raise DecodingError(
            f"the same texts, scored in another order, differ by up to {difference:.3g} nats, more "
            f"than decoding.max_permutation_difference={limit:g}; choose another decoding.scorer "
            "or model.dtype=float32. Everything else is complete."
        )


def quarantine_listed_damage(plan: Plan, renewed: Counter[str]) -> bool:
    """Quarantine damage that listings and manifests show; returns whether the plan is complete.

    `renewed` counts the quarantines of this run by file.

    Raises:
        InputError: answers do not fit the shards of their prompts.
        DamagedFileError: a file is damaged again and again.
    """
    artifacts = [step.artifact for step in plan.steps]
    findings = plan.store.each(lambda artifact: list(integrity.check_listing(artifact)), artifacts)
    for finding in itertools.chain.from_iterable(findings):
        _quarantine_finding(finding, renewed)
    for finding in integrity.find_outdated(artifacts):
        if finding.is_kept and plan.run.answers is None:
            raise InputError(finding.sentence)
        _quarantine_finding(finding, renewed)
    return plan.is_complete()


def repair(plan: Plan, damage: DamagedFileError, renewed: Counter[str]) -> None:
    """Quarantine a file that was found damaged when it was read.

    Raises:
        DamagedFileError: it belongs to no artifact of this plan, or was damaged again and again.
    """
    for step in plan.steps:
        if damage.name is not None and f"{damage.name}/".startswith(f"{step.artifact.folder}/"):
            _quarantine_finding(Finding.of(step.artifact, damage), renewed)
            return
    raise damage


def _quarantine_finding(finding: Finding, renewed: Counter[str]) -> None:
    artifact = finding.artifact
    name = finding.name or artifact.folder
    renewed[name] += 1
    if renewed[name] > _MOST:
        raise DamagedFileError(finding.sentence, finding.name)
    aside = finding.quarantine()
    LOG.warning("%s Set aside as %s.", finding.sentence, artifact.store.where(aside))
    if name == f"{artifact.folder}/recipe.json":
        artifact.begin()


def make_given(plan: Plan) -> None:
    """Make the missing artifacts of a plan with given answers, in this process."""
    wait = plan.run.cluster.when_held == "wait"
    with lease.hold_leases(plan.store, plan.missing(), wait=wait) as writer:
        with may_fail(PROGRESS):
            run_files.write_pulse(plan.run, "running", {})
        for step in plan.steps:
            if step.question is None:
                step.run(writer.leases.get(step.artifact.folder))

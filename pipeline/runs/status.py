"""status: the state of artifacts by listings and manifests, and the progress of a running run."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.wording import count
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import progress, remaining_prompts
from factsweep.pipeline.decoding.progress import Pace, line
from factsweep.pipeline.decoding.remaining_prompts import list_branch_work
from factsweep.pipeline.machine.logs import Meter
from factsweep.pipeline.runs.run_files import Pulse, read_pulse
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan, build_requested_plan
from factsweep.pipeline.stages.step import Step
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import check_listing
from factsweep.pipeline.storage.lease import Clock
from factsweep.pipeline.storage.shard import Footer, numbers
from factsweep.pipeline.storage.store import Store

_LOOK_S = 2.0
_SILENT_S = 60.0  # without a new pulse, before a run may be dead


def status(settings: Run) -> Iterator[str]:
    """One line per stage and setting: done, partial, missing or damaged; its speed, its writer."""
    for branch in build_requested_plan(settings).branches:
        yield branch.title
        for step in branch.steps:
            artifact = step.artifact
            try:
                damage = next(check_listing(artifact), None)
                state = f"damaged: {damage.sentence}" if damage else _state(step, branch, settings)
            except DamagedFileError as error:
                state = f"damaged: {error}"
            yield f"  {artifact.stage:12} {artifact.fingerprint}  {state}"


def _state(step: Step, branch: Branch, run: Run) -> str:
    artifact, question = step.artifact, step.question
    if question is not None and branch.chosen is not None and branch.chosen.is_complete():
        return _budget_state(branch, branch.chosen, run)
    if artifact.is_complete():
        return "done"
    if question is None or not branch.prompts.is_complete():
        return "partial" if artifact.store.names(artifact.folder) else "missing"
    published, shards = artifact.shards(artifact.stage), branch.prompts.rows(question.source)
    chunks = _chunks(artifact)
    if not published and not chunks:
        return f"missing: {len(shards):,} shards, {sum(shards.values()):,} prompts"
    rows = sum(shards.get(shard, 0) for shard in published) + sum(chunk.rows for chunk in chunks)
    parts = [
        f"partial: {len(published):,} of {len(shards):,} shards",
        f"{rows:,} of {sum(shards.values()):,} prompts",
    ]
    return " · ".join([*parts, *_spent(artifact, chunks)])


def _budget_state(branch: Branch, chosen: Artifact, run: Run) -> str:
    artifact, n_needed = branch.answers, chosen.read_all("needed").height
    n_shards = sum(rows > 0 for rows in chosen.rows("needed").values())
    n_left = n_needed
    if branch.admitted.is_complete():
        n_left = sum(remaining_prompts.count_left(list(list_branch_work(run, branch))))
    state = "done" if not n_left else "missing" if n_left == n_needed else "partial"
    budget = f"{count(n_needed, 'prompt')} of the budget in {count(n_shards, 'shard')}"
    progress_text = f"{state}: {n_needed - n_left:,} of {budget}"
    return " · ".join([progress_text, *_spent(artifact, _chunks(artifact))])


def _spent(artifact: Artifact, chunks: Sequence[Footer]) -> Iterator[str]:
    """The errors, the rates and the writer of an open artifact."""
    counts = Counter[str]()
    shard_counts = artifact.counts(artifact.stage).values()
    for part_counts in (*shard_counts, *(chunk.counts for chunk in chunks)):
        counts.update(numbers(part_counts))
    errors = sum(artifact.footer("errors", shard).rows for shard in artifact.shards("errors"))
    if counts:
        yield f"{errors} errors"
    if counts["seconds"]:
        yield "an engine: " + ", ".join(progress.rates(counts, counts["seconds"], "prompts"))
        if counts["gpu_seconds"]:
            yield f"{counts['gpu_seconds'] / 3600:.2f} GPU-hours"
    if (holder := lease.find_holder(artifact.store, artifact.folder)) is not None:
        yield f"written by {holder}"


def _chunks(artifact: Artifact) -> list[Footer]:
    """The footers of all chunks of open shards."""
    published = set(artifact.shards(artifact.stage))
    return [
        artifact.footer(artifact.stage, chunk, folder)
        for folder, chunk in artifact.chunks(artifact.stage)
        if folder.rpartition("/")[2] not in published
    ]


def watch(settings: Run, meter: Meter, clock: Clock = time) -> int:
    """Show the progress of a run until it ends; returns 0 if it is done, else 1."""
    plan, pace = build_plan(settings), Pace()
    last: Pulse | None = None
    changed_at = 0.0
    while True:
        pulse, time_s = read_pulse(settings), clock.monotonic()
        if (code := _exit_code(plan, pulse, meter)) is not None:
            return code
        if pulse is None:
            meter.show("not begun yet")
        else:
            if pulse != last:
                last, changed_at = pulse, time_s
            pace.add(time_s, pulse.counts)
            text = pulse.why or line(pulse.counts, pace.recent(), sure=pace.is_sure())
            if time_s - changed_at >= _SILENT_S:
                text = f"no sign of process {pulse.pid} on {pulse.host} since {pulse.at}"
            meter.show(text)
        clock.sleep(_LOOK_S)


def _exit_code(plan: Plan, pulse: Pulse | None, meter: Meter) -> int | None:
    """Report the end of the run, and return the exit code; None while it goes on."""
    folder = Store(plan.run.folder).where()
    if pulse is None or pulse.state == "done":
        if not plan.is_complete() and (pulse is None or plan.run.budget is None):
            return None
        meter.say(f"{meter.title}: done; results in {folder}")
        return 0
    if pulse.state in ("waiting", "running"):
        return None
    reason = f": {pulse.why}" if pulse.why else ""
    meter.say(f"{meter.title}: {pulse.state} at {pulse.at}{reason}; log: {folder}/logs/")
    return 1

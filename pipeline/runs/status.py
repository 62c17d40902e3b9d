"""status: what is complete, by listings and manifests alone; how another process gets on."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.wording import count
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import progress, remaining
from factsweep.pipeline.decoding.progress import Pace, line
from factsweep.pipeline.decoding.remaining import branch_work
from factsweep.pipeline.machine.logs import Meter
from factsweep.pipeline.runs.journal import Pulse, read_pulse
from factsweep.pipeline.stages.plan import Branch, Plan, asked, planned
from factsweep.pipeline.stages.step import Step
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import listed
from factsweep.pipeline.storage.lease import Clock
from factsweep.pipeline.storage.shard import Footer, numbers
from factsweep.pipeline.storage.store import Store

_LOOK_S = 2.0
_SILENT_S = 60.0  # after which a run that says nothing may be dead


def status(settings: Run) -> Iterator[str]:
    """One line per stage and setting: done, partial, missing or damaged; its speed, its writer."""
    for branch in asked(settings).branches:
        yield branch.title
        for step in branch.steps:
            artifact = step.artifact
            yield f"  {artifact.stage:12} {artifact.fingerprint}  {_state(step, branch, settings)}"


def _state(step: Step, branch: Branch, run: Run) -> str:
    try:
        found = next(listed(step.artifact), None)
        return _progress(step, branch, run) if found is None else f"damaged: {found.sentence}"
    except DamagedFileError as error:
        return f"damaged: {error}"


def _progress(step: Step, branch: Branch, run: Run) -> str:
    artifact, question = step.artifact, step.question
    if question is not None and branch.chosen is not None and branch.chosen.is_complete():
        return _of_budget(branch, run)
    if artifact.is_complete():
        return "done"
    if question is None or not branch.prompts.is_complete():
        return "partial" if artifact.store.names(artifact.folder) else "missing"
    done, shards = artifact.shards(artifact.stage), branch.prompts.rows(question.source)
    chunks = _chunks(artifact)
    if not done and not chunks:
        return f"missing: {len(shards):,} shards, {sum(shards.values()):,} prompts"
    rows = sum(shards.get(shard, 0) for shard in done) + sum(each.rows for each in chunks)
    parts = [
        f"partial: {len(done):,} of {len(shards):,} shards",
        f"{rows:,} of {sum(shards.values()):,} prompts",
    ]
    return " · ".join([*parts, *_spent(artifact, chunks)])


def _of_budget(branch: Branch, run: Run) -> str:
    """How much of a budget is answered; what else is answered is left out."""
    assert branch.chosen is not None
    artifact, needed = branch.answers, branch.chosen.read_all("needed")
    shards = sum(rows > 0 for rows in branch.chosen.rows("needed").values())
    left = needed.height
    if branch.admitted.is_complete():
        left = sum(remaining.left(list(branch_work(run, branch))))
    state = "done" if not left else "missing" if left == needed.height else "partial"
    budget = f"{count(needed.height, 'prompt')} of the budget in {count(shards, 'shard')}"
    done = f"{state}: {needed.height - left:,} of {budget}"
    return " · ".join([done, *_spent(artifact, _chunks(artifact))])


def _spent(artifact: Artifact, chunks: Sequence[Footer]) -> Iterator[str]:
    """What an engine that is not done has met and taken, and who writes."""
    counts = Counter[str]()
    for each in (*artifact.counts(artifact.stage).values(), *(each.counts for each in chunks)):
        counts.update(numbers(each))
    errors = sum(artifact.footer("errors", each).rows for each in artifact.shards("errors"))
    if counts:
        yield f"{errors} errors"
    if counts["seconds"]:
        yield "an engine: " + ", ".join(progress.rates(counts, counts["seconds"], "prompts"))
        if counts["gpu_seconds"]:
            yield f"{counts['gpu_seconds'] / 3600:.2f} GPU-hours"
    if (holder := lease.holder(artifact.store, artifact.folder)) is not None:
        yield f"written by {holder}"


def _chunks(artifact: Artifact) -> list[Footer]:
    """The rows and the counts of every finished chunk of an open shard."""
    done = set(artifact.shards(artifact.stage))
    return [
        artifact.footer(artifact.stage, chunk, folder)
        for folder, chunk in artifact.chunks(artifact.stage)
        if folder.rpartition("/")[2] not in done
    ]


def watch(settings: Run, meter: Meter, clock: Clock = time) -> int:
    """Show how a run gets on until it ends; returns 0 if it is done, 1 if it failed or stopped."""
    plan = planned(settings)
    pace, silent = Pace(), _Silence(clock)
    while True:
        found = read_pulse(settings)
        if (code := _ended(plan, found, meter)) is not None:
            return code
        if found is None:
            meter.show("not begun yet")
        else:
            pace.add(clock.monotonic(), found.counts)
            rates = line(found.counts, pace.recent(), sure=pace.is_sure())
            meter.show(silent.said(found) or found.why or rates)
        clock.sleep(_LOOK_S)


def _ended(plan: Plan, found: Pulse | None, meter: Meter) -> int | None:
    """Say how the run ended, if it did; returns the exit code."""
    where = Store(plan.run.folder).where()
    if found is None or found.state == "done":
        if not plan.is_complete() and (found is None or plan.run.budget is None):
            return None
        meter.say(f"{meter.title}: done; results in {where}")
        return 0
    if found.state in ("waiting", "running"):
        return None
    why = f": {found.why}" if found.why else ""
    meter.say(f"{meter.title}: {found.state} at {found.at}{why}; log: {where}/logs/")
    return 1


class _Silence:
    """For how long the pulse of a run has stood still."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: Pulse | None = None
        self._since = 0.0

    def said(self, found: Pulse) -> str | None:
        """A sentence, if that is long; null if the run lives."""
        now = self._clock.monotonic()
        if found != self._last:
            self._last, self._since = found, now
        if now - self._since < _SILENT_S:
            return None
        return f"no sign of process {found.pid} on {found.host} since {found.at}"

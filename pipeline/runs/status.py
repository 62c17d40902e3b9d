"""status: the state of artifacts by listings and manifests, and the progress of a running run."""

import time
from collections.abc import Iterator

import polars as pl

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.wording import count
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import progress, remaining_prompts
from factsweep.pipeline.decoding.progress import Pace, line
from factsweep.pipeline.decoding.remaining_prompts import list_branch_work
from factsweep.pipeline.machine.logs import Meter
from factsweep.pipeline.runs.run_files import Pulse, is_pulse_of, read_pulse
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan, build_requested_plan
from factsweep.pipeline.stages.step import Step
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import check_listing
from factsweep.pipeline.storage.lease import Clock
from factsweep.pipeline.storage.shard import Footer, sum_counts
from factsweep.pipeline.storage.store import Store

_LOOK_S = 2.0
_SILENT_S = 60.0  # without a new pulse, before a run may be dead


def status(settings: Run) -> Iterator[str]:
    """The state of a run, if it has begun, then a line per stage and setting.

    Of a stage: done, partial, missing or damaged; its speed, its writer.
    """
    plan, life_by_writer = build_requested_plan(settings), dict[str, str]()
    pulse = read_pulse(plan.run)
    if pulse is not None and is_pulse_of(pulse, plan.run):
        yield f"run {plan.run.name}: {_describe_pulse(pulse)}"
    for branch in plan.branches:
        yield branch.title
        for step in branch.steps:
            artifact = step.artifact
            try:
                damage = next(check_listing(artifact), None)
                if damage is None:
                    state = " · ".join(_describe_state(step, branch, plan.run, life_by_writer))
                else:
                    state = f"damaged: {damage.sentence}"
            except DamagedFileError as error:
                state = f"damaged: {error}"
            yield f"  {artifact.stage:12} {artifact.fingerprint}  {state}"


def _describe_pulse(pulse: Pulse) -> str:
    reason = f": {pulse.why}" if pulse.why else ""
    if pulse.is_dead():
        return (
            f"dead: {pulse.process} ended without a word, and was last heard of at {pulse.at}; "
            "run it again, and it resumes"
        )
    if pulse.state in ("waiting", "running"):
        return f"{pulse.state}, {pulse.process}, last heard of at {pulse.at}{reason}"
    return f"{pulse.state} at {pulse.at}{reason}"


def _describe_state(
    step: Step, branch: Branch, run: Run, life_by_writer: dict[str, str]
) -> Iterator[str]:
    """The state of an artifact; of one that engines write its counts, rates and writer.

    `life_by_writer` caches whether a writer is alive, which may take seconds to find out.
    """
    artifact, question, chosen, is_open = step.artifact, step.question, branch.chosen, True
    if question is not None and chosen is not None:
        if not chosen.is_complete():  # there may be answers to another part of the prompts
            yield "missing: its prompts are not chosen yet"
            return
        needed, chunks = chosen.read_all("needed").select("prompt_id"), _list_open_chunks(artifact)
        yield (state := _describe_budget(branch, needed, run))
        is_open = not state.startswith("done")
    elif artifact.is_complete():
        yield "done"
        return
    elif question is None or not branch.prompts.is_complete():
        yield "partial" if artifact.store.names(artifact.folder) else "missing"
        return
    else:
        needed, chunks = None, _list_open_chunks(artifact)
        published, shards = artifact.shards(artifact.stage), branch.prompts.rows(question.source)
        n_chunked = sum(chunk.rows for chunk in chunks)
        if not published and not n_chunked:
            yield f"missing: {len(shards):,} shards, {sum(shards.values()):,} prompts"
        else:
            yield f"partial: {len(published):,} of {len(shards):,} shards"
            rows = sum(shards.get(shard, 0) for shard in published) + n_chunked
            yield f"{rows:,} of {sum(shards.values()):,} prompts"
    yield from _describe_spending(artifact, chunks, needed)
    if is_open and (holder := lease.find_holder(artifact.store, artifact.folder)) is not None:
        if holder.id not in life_by_writer:
            life_by_writer[holder.id] = lease.describe_life(artifact.store, holder)
        yield f"written by {holder}{life_by_writer[holder.id]}"


def _describe_budget(branch: Branch, needed: pl.DataFrame, run: Run) -> str:
    assert branch.chosen is not None
    n_shards = sum(rows > 0 for rows in branch.chosen.rows("needed").values())
    n_left = n_needed = needed.height
    if branch.admitted.is_complete():
        n_left = sum(remaining_prompts.count_left(list(list_branch_work(run, branch))))
    state = "done" if not n_left else "missing" if n_left == n_needed else "partial"
    budget = f"{count(n_needed, 'prompt')} of the budget in {count(n_shards, 'shard')}"
    return f"{state}: {n_needed - n_left:,} of {budget}"


def _describe_spending(
    artifact: Artifact, chunks: list[Footer], needed: pl.DataFrame | None
) -> Iterator[str]:
    """The errors and the rates of an artifact with open `chunks`; `needed`: a budget's prompts."""
    published = artifact.counts(artifact.stage).values()
    counts = sum_counts([*published, *(chunk.counts for chunk in chunks)])
    if counts:
        yield f"{_count_errors(artifact, needed)} errors"
    if counts["seconds"]:
        yield "an engine: " + ", ".join(progress.rates(counts, counts["seconds"], "prompts"))
        if counts["gpu_seconds"]:
            yield f"{counts['gpu_seconds'] / 3600:.2f} GPU-hours"


def _count_errors(artifact: Artifact, needed: pl.DataFrame | None) -> int:
    """The error rows of published shards; of a budget those of its prompts, also in chunks."""
    if needed is None:
        return sum(artifact.footer("errors", shard).rows for shard in artifact.shards("errors"))
    chunks = (
        artifact.read_chunk("errors", folder, chunk)[0]
        for folder, chunk in artifact.chunks("errors")
    )
    rows = pl.concat([artifact.read_all("errors"), *chunks]).unique("prompt_id")
    return rows.join(needed, on="prompt_id", how="semi").height


def _list_open_chunks(artifact: Artifact) -> list[Footer]:
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
        if pulse is not None and not is_pulse_of(pulse, plan.run):  # another run had this name
            pulse = None
        if (code := _report_end(plan, pulse, meter)) is not None:
            return code
        if pulse is None:
            meter.show("not begun yet")
        else:
            if pulse != last:
                last, changed_at = pulse, time_s
            pace.add(time_s, pulse.counts)
            text = pulse.why or line(pulse.counts, pace.recent(), sure=pace.is_sure())
            if time_s - changed_at >= _SILENT_S:
                text = f"no sign of {pulse.process} since {pulse.at}"
            meter.show(text)
        clock.sleep(_LOOK_S)


def _report_end(plan: Plan, pulse: Pulse | None, meter: Meter) -> int | None:
    """Report the end of the run, and return the exit code; None while it goes on."""
    folder = Store(plan.run.folder).where()
    if pulse is None or pulse.state == "done":
        if not plan.is_complete() and (pulse is None or plan.run.budget is None):
            return None
        meter.say(f"{meter.title}: done; results in {folder}")
        return 0
    if pulse.state in ("waiting", "running") and not pulse.is_dead():
        return None
    meter.say(f"{meter.title}: {_describe_pulse(pulse)}; log: {folder}/logs/")
    return 1

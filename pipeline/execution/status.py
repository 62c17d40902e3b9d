"""status: what is complete, read from listings and manifests alone."""

from collections import Counter
from collections.abc import Iterator

from operators.errors import DamagedFileError
from pipeline.config.settings import Run
from pipeline.execution import progress
from pipeline.execution.plan import Branch, Step, planned
from pipeline.storage import lease
from pipeline.storage.artifact import Artifact
from pipeline.storage.findings import listed
from pipeline.storage.shard import Footer, numbers


def status(settings: Run) -> Iterator[str]:
    """One line per stage and setting: done, partial, missing or damaged; its speed, its writer."""
    for branch in planned(settings).branches:
        yield branch.title
        for step in branch.steps:
            artifact = step.artifact
            yield f"  {artifact.stage:12} {artifact.fingerprint}  {_state(step, branch)}"


def _state(step: Step, branch: Branch) -> str:
    try:
        found = next(listed(step.artifact), None)
        return _progress(step, branch) if found is None else f"damaged: {found.sentence}"
    except DamagedFileError as error:
        return f"damaged: {error}"


def _progress(step: Step, branch: Branch) -> str:
    artifact, question = step.artifact, step.question
    if artifact.is_complete():
        return "done"
    if question is None or not branch.prompts.is_complete():
        return "partial" if artifact.store.names(artifact.folder) else "missing"
    done, shards = artifact.shards(artifact.stage), branch.prompts.rows(question.source)
    chunks = _chunks(artifact)
    if not done and not chunks:
        return f"missing: {len(shards):,} shards, {sum(shards.values()):,} prompts"
    rows = sum(shards.get(shard, 0) for shard in done) + sum(each.rows for each in chunks)
    counts = Counter[str]()
    for each in (*artifact.counts(artifact.stage).values(), *(each.counts for each in chunks)):
        counts.update(numbers(each))
    parts = [
        f"partial: {len(done):,} of {len(shards):,} shards",
        f"{rows:,} of {sum(shards.values()):,} prompts",
        f"{sum(artifact.footer('errors', each).rows for each in artifact.shards('errors'))} errors",
    ]
    if counts["seconds"]:
        parts += ["an engine: " + ", ".join(progress.rates(counts, counts["seconds"], "prompts"))]
        parts += [f"{counts['gpu_seconds'] / 3600:.2f} GPU-hours"] if counts["gpu_seconds"] else []
    if (holder := lease.holder(artifact.store, artifact.folder)) is not None:
        parts += [f"written by {holder}"]
    return " · ".join(parts)


def _chunks(artifact: Artifact) -> list[Footer]:
    """The rows and the counts of every finished chunk of an open shard."""
    folder = f"chunks/{artifact.stage}"
    done = artifact.shards(artifact.stage)
    open_shards = set(artifact.store.folders(f"{artifact.folder}/{folder}")) - set(done)
    return [
        artifact.footer(artifact.stage, chunk, f"{folder}/{shard}")
        for shard in sorted(open_shards)
        for chunk in artifact.published(f"{folder}/{shard}")
    ]

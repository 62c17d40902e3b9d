"""status and verify: what is complete and whole, read from the artifacts alone."""

import hashlib
from collections import Counter
from collections.abc import Iterator

import polars as pl

from operators.errors import DamagedFileError
from operators.schemas import KEYS
from pipeline.config.settings import Run
from pipeline.execution import progress
from pipeline.execution.plan import Branch, Step, planned
from pipeline.storage import lease
from pipeline.storage.artifact import Artifact, Counts, decode, numbers


def status(settings: Run) -> Iterator[str]:
    """One line per stage and setting: done, partial or missing; its speed, and who works on it."""
    for branch in planned(settings).branches:
        yield branch.title
        for step in branch.steps:
            artifact = step.artifact
            yield f"  {artifact.stage:12} {artifact.fingerprint}  {_state(step, branch)}"


def _state(step: Step, branch: Branch) -> str:
    artifact, question = step.artifact, step.question
    if artifact.is_complete():
        return "done"
    if question is None or not branch.prompts.is_complete():
        return "partial" if artifact.store.names(artifact.folder) else "missing"
    done, shards = artifact.shards(artifact.stage), branch.prompts.rows(question.source)
    chunks = _chunks(artifact)
    if not done and not chunks:
        return f"missing: {len(shards):,} shards, {sum(shards.values()):,} prompts"
    rows = sum(shards[shard] for shard in done) + sum(n for n, _ in chunks)
    counts = Counter[str]()
    for each in (*artifact.counts(artifact.stage).values(), *(found for _, found in chunks)):
        counts.update(numbers(each))
    parts = [
        f"partial: {len(done):,} of {len(shards):,} shards",
        f"{rows:,} of {sum(shards.values()):,} prompts",
        f"{sum(artifact.footer('errors', shard)[0] for shard in artifact.shards('errors'))} errors",
    ]
    if counts["seconds"]:
        parts += ["an engine: " + ", ".join(progress.rates(counts, counts["seconds"], "prompts"))]
        parts += [f"{counts['gpu_seconds'] / 3600:.2f} GPU-hours"] if counts["gpu_seconds"] else []
    if (holder := lease.holder(artifact.store, artifact.folder)) is not None:
        parts += [f"written by {holder}"]
    return " · ".join(parts)


def _chunks(artifact: Artifact) -> list[tuple[int, Counts]]:
    """The rows and the counts of every finished chunk of an open shard."""
    folder = f"chunks/{artifact.stage}"
    done = artifact.shards(artifact.stage)
    open_shards = set(artifact.store.folders(f"{artifact.folder}/{folder}")) - set(done)
    return [
        artifact.footer(f"{folder}/{shard}", chunk)
        for shard in sorted(open_shards)
        for chunk in artifact.shards(f"{folder}/{shard}")
    ]


def verify(settings: Run, *, repair: bool = False) -> tuple[int, list[str]]:
    """Read every shard of a run; returns how many there are, and a sentence for each problem.

    With `repair`, damaged shards are set aside, so that the next run recomputes them.
    """
    checked, problems = 0, []
    seen: set[str] = set()
    for branch in planned(settings).branches:
        for artifact in branch.artifacts():
            if artifact.folder in seen:
                continue
            seen.add(artifact.folder)
            shards, found = _verify_artifact(artifact, repair=repair)
            checked += shards
            problems += found
        try:
            problems += _unanswered(branch)
        except (DamagedFileError, FileNotFoundError):
            continue  # already a problem, by its name
    return checked, problems


def _verify_artifact(artifact: Artifact, *, repair: bool) -> tuple[int, list[str]]:
    if not artifact.is_complete():
        return 0, [f"{artifact.store.where(artifact.folder)} is not complete; run it again."]
    checked, problems = 0, []
    for table, shards in artifact.manifest()["tables"].items():
        ids: list[pl.Series] = []
        for shard, entry in shards.items():
            checked += 1
            name = f"{artifact.folder}/{table}/{shard}.parquet"
            try:
                frame = _verified(artifact, table, name, entry)
            except DamagedFileError as error:
                aside = artifact.set_aside(name) if repair else None
                problems.append(f"{error} Set aside as {aside}." if aside else str(error))
                continue
            if table in KEYS:
                ids.append(frame[KEYS[table]])
        if ids and (twice := pl.concat(ids).is_duplicated().sum()):
            folder = artifact.store.where(f"{artifact.folder}/{table}")
            problems.append(f"{folder}: {twice} rows share a {KEYS[table]} with another.")
    return checked, problems


def _verified(artifact: Artifact, table: str, name: str, entry: dict[str, object]) -> pl.DataFrame:
    where = artifact.store.where(name)
    try:
        content = artifact.store.get(name)
    except FileNotFoundError as error:
        raise DamagedFileError(
            f"{where} is gone; run verify with --repair, then run again."
        ) from error
    frame = decode(content, table, artifact.fingerprint, where)
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise DamagedFileError(f"{where} is not what the manifest says (SHA-256); set it aside.")
    return frame


def _unanswered(branch: Branch) -> Iterator[str]:
    """Decoded artifacts with prompts that have neither an answer nor an error row."""
    inputs = (branch.prompts, branch.admitted)
    for artifact, question in branch.asked():
        if all(each.is_complete() for each in (*inputs, artifact)):
            failed = pl.concat([each.read_all("errors") for each in (branch.admitted, artifact)])
            answered = artifact.read_all(artifact.stage)
            left = question.asked(branch.prompts.read_all(question.source))
            left = left.join(answered, on="prompt_id", how="anti")
            left = left.join(failed, on="prompt_id", how="anti")
            if left.height:
                folder = artifact.store.where(artifact.folder)
                yield f"{folder}: {left.height} prompts have neither answer nor error."

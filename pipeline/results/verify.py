"""verify: read every byte of a run's artifacts, or of all in a store, and say what is wrong."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from operators.errors import DamagedFileError, InputError
from pipeline.config.settings import Run
from pipeline.execution.plan import Branch, planned
from pipeline.results import record, report
from pipeline.storage import findings
from pipeline.storage.artifact import Artifact
from pipeline.storage.findings import Finding
from pipeline.storage.lookup import folders, located
from pipeline.storage.manifest import Pin
from pipeline.storage.sealed import REPAIR
from pipeline.storage.store import Store


class Verified(NamedTuple):
    """How many shards were read, and a sentence for each thing that is wrong."""

    shards: int
    problems: list[str]


def verify(settings: Run, *, repair: bool = False) -> Verified:
    """Read every shard of a run, and its results as far as there are any.

    With `repair`, what is damaged is set aside, so that the next run computes it anew.
    """
    plan = planned(settings)
    artifacts = [step.artifact for step in plan.steps]
    recorded, problems = _results(report.folder(settings), repair=repair)
    found = _verified(artifacts, recorded, repair=repair)
    missing = [
        f"{each.store.where(each.folder)} is not complete; run it again."
        for each in artifacts
        if not _is_complete(each)
    ]
    unanswered = _unanswered(plan.branches)
    return Verified(found.shards, [*problems, *found.problems, *missing, *unanswered])


def verify_store(root: str, *, repair: bool = False) -> Verified:
    """Read every shard of all complete artifacts in a store, and the recipes of the open ones.

    Raises:
        InputError: there are none.
    """
    store = Store(root)
    artifacts = [located(store, folder) for folder in folders(store)]
    if not artifacts:
        raise InputError(f"{store.where()} holds no artifacts; say where they lie with artifacts=…")
    return _verified(artifacts, {}, repair=repair)


def _results(store: Store, *, repair: bool) -> tuple[dict[str, Pin], list[str]]:
    """What the results of a run were made of, and what is wrong with their files."""
    problems = {}
    try:
        found = record.read(store)
    except FileNotFoundError:
        return {}, []
    except DamagedFileError as error:
        problems[record.NAME], found = error, {}
    for name in found.get("files", {}):
        try:
            record.file(store, found, name)
        except DamagedFileError as error:
            problems[name] = error
    if repair:
        for name in problems:
            store.set_aside(name)
    return record.pins(found), [str(error) for error in problems.values()]


def _verified(artifacts: Sequence[Artifact], recorded: dict[str, Pin], *, repair: bool) -> Verified:
    found = [finding for each in artifacts for finding in findings.read(each)]
    complete = {each.folder: each for each in artifacts if _is_complete(each)}
    found += findings.misfits(complete, recorded, {})
    shards = sum(
        len(each) for artifact in complete.values() for each in artifact.manifest().tables.values()
    )
    return Verified(shards, [_sentence(each, repair=repair) for each in found])


def _is_complete(artifact: Artifact) -> bool:
    """Whether there is a manifest; a damaged one is a finding of its own."""
    try:
        return artifact.is_complete()
    except DamagedFileError:
        return False


def _sentence(finding: Finding, *, repair: bool) -> str:
    if not repair:
        return finding.sentence
    aside = finding.artifact.store.where(finding.set_aside())
    return f"{finding.sentence} Set aside as {aside}."


def _unanswered(branches: Sequence[Branch]) -> Iterator[str]:
    """Decoded artifacts with prompts that have neither an answer nor an error row."""
    for branch in branches:
        inputs = (branch.prompts, branch.admitted)
        for artifact, question in branch.asked():
            if not all(map(_is_complete, (*inputs, artifact))):
                continue
            try:
                failed = pl.concat([e.read_all("errors") for e in (branch.admitted, artifact)])
                left = question.asked(branch.prompts.read_all(question.source))
                answered = artifact.read_all(artifact.stage)
            except DamagedFileError:
                continue  # already a finding, by its name
            for rows in (answered, failed):
                left = left.join(rows, on="prompt_id", how="anti")
            if left.height:
                where = artifact.store.where(artifact.folder)
                what = f"{left.height} prompts have neither answer nor error"
                yield f"{where}: {what}{REPAIR}"

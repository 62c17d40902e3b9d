"""verify: read every byte of a run's artifacts, or of all in a store, and say what is wrong."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.wording import count
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining
from factsweep.pipeline.decoding.costs import paid_for
from factsweep.pipeline.decoding.remaining import branch_work
from factsweep.pipeline.results import estimates, past, record
from factsweep.pipeline.results.estimates import answers_of_budget
from factsweep.pipeline.stages.plan import Branch, Plan, asked
from factsweep.pipeline.storage import integrity
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import Finding
from factsweep.pipeline.storage.json_files import REPAIR, RERUN
from factsweep.pipeline.storage.lookup import folders, located
from factsweep.pipeline.storage.store import Store


class Verified(NamedTuple):
    """How many shards were read, and a sentence for each thing that is wrong."""

    shards: int
    problems: list[str]


def verify(settings: Run, *, repair: bool = False) -> Verified:
    """Read every shard of a run, and its results as far as there are any.

    With `repair`, what is damaged is set aside, so that the next run computes it anew. Of a budget
    the answers to its prompts are read, wherever they are.
    """
    plan = asked(paid_for(settings))
    artifacts = [step.artifact for step in plan.steps]
    problems = _results(Store(settings.folder), plan, repair=repair)
    found = _verified(artifacts, repair=repair)
    stay_open = {each.answers.folder for each in plan.branches if each.chosen is not None}
    missing = [
        f"{each.store.where(each.folder)} is not complete; run it again."
        for each in artifacts
        if each.folder not in stay_open and not _is_complete(each)
    ]
    parts = [line for each in plan.branches for line in _of_budget(plan.run, each, repair=repair)]
    unanswered = _unanswered(plan.branches)
    problems += [*found.problems, *missing, *parts, *unanswered]
    return Verified(found.shards, list(dict.fromkeys(problems)))


def _of_budget(run: Run, branch: Branch, *, repair: bool) -> Iterator[str]:
    """What is wrong with the answers to the prompts of a budget, and how many there are not."""
    chosen = branch.chosen
    if chosen is None or not all(map(_is_complete, (branch.prompts, branch.admitted, chosen))):
        return
    try:
        answers_of_budget(branch.answers, chosen)
        needed = chosen.read_all("needed")
        left = sum(remaining.left(list(branch_work(run, branch))))
    except DamagedFileError as error:
        yield _sentence(Finding.of(branch.answers, error), repair=repair)
        return
    if left:
        where = branch.answers.store.where(branch.answers.folder)
        of = f"{left:,} of {count(needed.height, 'prompt')} of the budget"
        yield f"{where}: {of} have neither answer nor error; run it again."


def verify_store(root: str, *, repair: bool = False) -> Verified:
    """Read every shard of all complete artifacts in a store, and the recipes of the open ones.

    Raises:
        InputError: there are none.
    """
    store = Store(root)
    artifacts = [located(store, folder) for folder in folders(store)]
    if not artifacts:
        raise InputError(f"{store.where()} holds no artifacts; say where they lie with artifacts=…")
    return _verified(artifacts, repair=repair)


def _results(store: Store, plan: Plan, *, repair: bool) -> list[str]:
    """What is wrong with the files of a run's results; the next run writes them anew."""
    problems, name, numbers = list[str](), record.NAME, _numbers(plan)
    try:
        found = record.read(store)
        if found["artifacts"] != record.artifacts(plan) or not plan.branches:
            other = f"{store.where(name)} lists other artifacts than those of this run"
            raise DamagedFileError(f"{other}{RERUN}")
        problems += record.wrong_files(store, found)
        name = record.METRICS
        metrics = past.metrics(store, found)
        if numbers is not None and not metrics.equals(numbers):
            what = f"{store.where(name)} is not what the run's artifacts say"
            raise DamagedFileError(f"{what}{RERUN}")
    except FileNotFoundError:
        return list(estimates.wrong(plan.run))
    except DamagedFileError as error:
        problems.append(str(error))
        if repair:
            store.set_aside(name)
    return problems


def _numbers(plan: Plan) -> pl.DataFrame | None:
    """Every number in the artifacts of a run; null where one is open, or a finding of its own."""
    artifacts = [branch.metrics for branch in plan.branches]
    if not artifacts or not all(map(_is_complete, artifacts)):
        return None
    try:
        return pl.concat(artifact.read_all("metrics") for artifact in artifacts)
    except DamagedFileError:
        return None


def _verified(artifacts: Sequence[Artifact], *, repair: bool) -> Verified:
    found = [finding for each in artifacts for finding in integrity.read(each)]
    found += integrity.stale(artifacts)
    tables = (each.manifest().tables.values() for each in artifacts if each.was_complete)
    shards = sum(len(table) for of_each in tables for table in of_each)
    return Verified(shards, [_sentence(each, repair=repair) for each in found])


def _is_complete(artifact: Artifact) -> bool:
    """Whether there is a manifest; a damaged one is a finding of its own."""
    try:
        return artifact.is_complete()
    except DamagedFileError:
        return False


def _sentence(finding: Finding, *, repair: bool) -> str:
    if not repair or finding.is_kept:
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

"""verify: read every byte of a run's artifacts, or of a whole store, and report damage."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.wording import count
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.remaining_prompts import list_branch_work
from factsweep.pipeline.results import estimates, past_runs, run_record
from factsweep.pipeline.results.estimates import read_answers_of_budget
from factsweep.pipeline.stages.plan import Branch, Plan, build_requested_plan
from factsweep.pipeline.storage import integrity
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import Finding
from factsweep.pipeline.storage.lookup import folders, locate_artifact
from factsweep.pipeline.storage.store import REPAIR, RERUN, Store


class VerifyResult(NamedTuple):
    """The number of shards read, and a sentence for each problem."""

    shards: int
    problems: list[str]


def verify(settings: Run, *, repair: bool = False) -> VerifyResult:
    """Read every shard of a run, or the answers of its budget, and its results if there are any.

    With `repair`, damaged files are quarantined, so that the next run computes them again.
    """
    plan = build_requested_plan(settings)
    artifacts = [step.artifact for step in plan.steps]
    problems = _check_results(Store(settings.folder), plan, repair=repair)
    verified = _check_artifacts(artifacts, repair=repair)
    open_folders = {branch.answers.folder for branch in plan.branches if branch.chosen is not None}
    problems += verified.problems
    problems += [
        f"{artifact.store.where(artifact.folder)} is not complete; run it again."
        for artifact in artifacts
        if artifact.folder not in open_folders and not _is_complete(artifact)
    ]
    for branch in plan.branches:
        problems += _find_budget_problems(plan.run, branch, repair=repair)
    problems += _find_unanswered(plan.branches)
    return VerifyResult(verified.shards, list(dict.fromkeys(problems)))


def _find_budget_problems(run: Run, branch: Branch, *, repair: bool) -> Iterator[str]:
    chosen = branch.chosen
    if chosen is None or not all(map(_is_complete, (branch.prompts, branch.admitted, chosen))):
        return
    try:
        read_answers_of_budget(branch.answers, chosen)
        needed = chosen.read_all("needed")
        n_left = sum(remaining_prompts.count_left(list(list_branch_work(run, branch))))
    except DamagedFileError as error:
        yield _describe_or_quarantine(Finding.of(branch.answers, error), repair=repair)
        return
    if n_left:
        folder = branch.answers.store.where(branch.answers.folder)
        total = f"{n_left:,} of {count(needed.height, 'prompt')} of the budget"
        yield f"{folder}: {total} have neither answer nor error; run it again."


def verify_store(root: str, *, repair: bool = False) -> VerifyResult:
    """Read every shard of all complete artifacts in a store, and the recipes of the open ones.

    Raises:
        InputError: the store has no artifacts.
    """
    store = Store(root)
    artifacts = [locate_artifact(store, folder) for folder in folders(store)]
    if not artifacts:
        raise InputError(f"{store.where()} holds no artifacts; say where they lie with artifacts=…")
    return _check_artifacts(artifacts, repair=repair)


def _check_results(store: Store, plan: Plan, *, repair: bool) -> list[str]:
    """The problems of a run's results; the next run writes them again."""
    problems, name, numbers = list[str](), run_record.NAME, _read_numbers(plan)
    try:
        content = run_record.read(store)
        if content["artifacts"] != run_record.artifacts(plan) or not plan.branches:
            path = store.where(name)
            raise DamagedFileError(f"{path} lists other artifacts than those of this run{RERUN}")
        problems += run_record.find_wrong_files(store, content)
        name = run_record.METRICS
        if numbers is not None and not past_runs.metrics(store, content).equals(numbers):
            path = store.where(name)
            raise DamagedFileError(f"{path} differs from the artifacts of the run{RERUN}")
    except FileNotFoundError:
        return list(estimates.find_damaged(plan.run))
    except DamagedFileError as error:
        problems.append(str(error))
        if repair:
            store.quarantine(name)
    return problems


def _read_numbers(plan: Plan) -> pl.DataFrame | None:
    """Every number in the artifacts of a run; null if one is open or damaged."""
    artifacts = [branch.metrics for branch in plan.branches]
    if not artifacts or not all(map(_is_complete, artifacts)):
        return None
    try:
        return pl.concat(artifact.read_all("metrics") for artifact in artifacts)
    except DamagedFileError:
        return None


def _check_artifacts(artifacts: Sequence[Artifact], *, repair: bool) -> VerifyResult:
    findings = [finding for artifact in artifacts for finding in integrity.check_content(artifact)]
    findings += integrity.find_outdated(artifacts)
    complete = (artifact for artifact in artifacts if artifact.was_complete)
    n_shards = sum(len(t) for artifact in complete for t in artifact.manifest().tables.values())
    return VerifyResult(
        n_shards, [_describe_or_quarantine(finding, repair=repair) for finding in findings]
    )


def _is_complete(artifact: Artifact) -> bool:
    """Whether the artifact has a sound manifest; a damaged one is reported elsewhere."""
    try:
        return artifact.is_complete()
    except DamagedFileError:
        return False


def _describe_or_quarantine(finding: Finding, *, repair: bool) -> str:
    if not repair or finding.is_kept:
        return finding.sentence
    aside = finding.artifact.store.where(finding.quarantine())
    return f"{finding.sentence} Set aside as {aside}."


def _find_unanswered(branches: Sequence[Branch]) -> Iterator[str]:
    """Decoded artifacts with prompts that have neither an answer nor an error row."""
    for branch in branches:
        inputs = (branch.prompts, branch.admitted)
        for artifact, question in branch.list_questions():
            if not all(map(_is_complete, (*inputs, artifact))):
                continue
            try:
                failed = pl.concat([e.read_all("errors") for e in (branch.admitted, artifact)])
                rows_left = question.select_rows(branch.prompts.read_all(question.source))
                answered = artifact.read_all(artifact.stage)
            except DamagedFileError:
                continue  # reported by its name
            for rows in (answered, failed):
                rows_left = rows_left.join(rows, on="prompt_id", how="anti")
            if rows_left.height:
                folder = artifact.store.where(artifact.folder)
                yield f"{folder}: {rows_left.height} prompts have neither answer nor error{REPAIR}"

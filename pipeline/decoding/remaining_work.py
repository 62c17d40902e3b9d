"""Work: what engines have not answered yet, and have cost; how what they write begins and ends."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from factsweep.pipeline.cluster.hardware import hardware
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining
from factsweep.pipeline.decoding.open_shard import with_trial
from factsweep.pipeline.decoding.work import Work
from factsweep.pipeline.stages.generate import REQUESTS, WITHOUT
from factsweep.pipeline.stages.plan import Branch, Plan
from factsweep.pipeline.stages.question import Question
from factsweep.pipeline.stages.step import check_inputs
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import ANEW
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.shard import Counts, numbers


def work(plan: Plan) -> list[Work]:
    """The shards that no engine has answered yet; prompts must be there."""
    return [item for branch in plan.branches for item in branch_work(plan.run, branch)]


def paid(plan: Plan) -> float:
    """What the answers of a plan have cost so far, whichever run paid a server for them."""
    return sum(float(counts.get("cost", 0)) for counts in _counts(plan.answered))


def requests_per_prompt(plan: Plan) -> float | None:
    """How many requests the samples of a prompt took so far; null: none were asked for yet."""
    sums = Counter[str]()
    for counts in _counts(artifact for artifact in plan.answered if artifact.stage == "samples"):
        sums.update(numbers(counts))
    if not sums["answers"]:
        return None
    n_prompts = sums[f"{WITHOUT}n"]
    return sums[REQUESTS] / n_prompts if n_prompts else 1.0


def _counts(artifacts: Iterable[Artifact]) -> Iterator[Counts]:
    """The counts of answers, in published shards and in open ones."""
    for artifact in artifacts:
        yield from artifact.counts(artifact.stage).values()
        yield from remaining.open_counts(artifact)


def leased(artifact: Artifact, leases: Mapping[str, Lease]) -> Artifact:
    """The artifact as its holder publishes it."""
    return replace(artifact, lease=leases.get(artifact.folder))


def branch_work(run: Run, branch: Branch) -> Iterator[Work]:
    """The shards of a setting that no engine has answered yet; its prompts must be there."""
    for artifact, question in branch.asked():
        for shard in _missing(artifact, branch.prompts, question):
            yield Work(
                artifact=artifact,
                prompts=branch.prompts,
                admitted=branch.admitted,
                shard=shard,
                model=branch.weights.model.name,
                adapter=branch.weights.model.adapter,
                question=question,
                rows_per_chunk=run.cluster.rows_per_chunk,
                seconds_per_chunk=run.cluster.seconds_per_chunk,
                max_deaths=run.cluster.max_deaths,
                max_failed_share=run.decoding.max_failed_share,
                hardware=hardware(run),
            )


def begin(branch: Branch, artifact: Artifact) -> None:
    """Begin an artifact that engines write; answers to other prompts are set aside."""
    artifact.begin()
    check_inputs(artifact, [branch.prompts, branch.admitted])


def finish(branch: Branch, artifact: Artifact, question: Question) -> None:
    """Complete an artifact all of whose shards were answered by engines.

    One of which a part is asked stays open.

    Raises:
        DamagedFileError: one of them is damaged, missing, or one too many.
    """
    if question.part is not None:
        return
    shards = branch.prompts.shards(question.source)
    artifact.finish(
        [question.table, *question.further, "errors"],
        made_of=(branch.prompts, branch.admitted),
        of={question.table: shards},
    )
    artifact.drop(ANEW)


def finish_all(plan: Plan, leases: Mapping[str, Lease], folder: str | None = None) -> None:
    """Complete what engines have answered; of a `folder`, where no stop has left a shard of it.

    Raises:
        DamagedFileError: a shard is damaged, missing, or one too many.
    """
    for branch in plan.branches:
        for artifact, question in branch.asked():
            asked = folder is None or folder == artifact.folder
            if not asked or artifact.is_complete():
                continue
            if folder is None or not _missing(artifact, branch.prompts, question):
                finish(branch, leased(artifact, leases), question)


def _missing(output: Artifact, prompts: Artifact, question: Question) -> list[str]:
    if output.is_complete():
        return []
    done = set(output.shards(question.table)) - with_trial(output, question.table)
    return [shard for shard in question.shards(prompts) if shard not in done]

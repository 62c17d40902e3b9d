"""The prompts without an answer, their costs so far, and the completion of answered artifacts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from factsweep.operators.schemas import empty
from factsweep.pipeline.cluster.hardware import Hardware, hardware
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages.expand import relation_of, with_text
from factsweep.pipeline.stages.generate import REQUESTS, WITHOUT
from factsweep.pipeline.stages.plan import Branch, Plan
from factsweep.pipeline.stages.question import Question
from factsweep.pipeline.stages.step import check_inputs
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.shard import Counts, sum_counts


@dataclass(frozen=True)
class Work:
    """A shard to decode: an engine gets this, and reads the rows itself."""

    artifact: Artifact
    prompts: Artifact
    admitted: Artifact
    shard: str
    model: str
    question: Question
    rows_per_chunk: int
    seconds_per_chunk: float
    max_deaths: int
    max_failed_share: float
    hardware: Hardware

    @property
    def table(self) -> str:
        """The table of the answers."""
        return self.artifact.stage

    @property
    def source(self) -> str:
        """The table of the prompts."""
        return self.question.source

    @property
    def open_name(self) -> str:
        """The name of the shard within the folders of open shards."""
        return f"{self.table}/{self.shard}"

    @property
    def name(self) -> str:
        """The name of the shard in messages and counts."""
        return f"{self.artifact.folder}/{self.open_name}"

    @property
    def chunks(self) -> str:
        """The folder of its chunks of answers."""
        return f"chunks/{self.open_name}"

    @property
    def thoughts(self) -> str:
        """The folder of its chunks of thoughts."""
        return f"chunks/thoughts/{self.shard}"

    @property
    def refusals(self) -> str:
        """The folder of its chunks of error rows."""
        return f"chunks/errors/{self.shard}"

    @property
    def trial(self) -> str:
        """The file of its trial (`Trial`)."""
        return f"trials/{self.open_name}.json"

    def n_answers(self, n_prompts: int) -> int:
        """The number of answers to `n_prompts` prompts."""
        return n_prompts * self.question.task.answers_per_prompt


def read_prompts(work: Work) -> pl.DataFrame:
    """The prompts of the shard to ask that are not too long, with text, in prefix order."""
    return _drop_too_long(work, with_text(work.prompts, work.source, work.shard))


def _drop_too_long(work: Work, rows: pl.DataFrame) -> pl.DataFrame:
    errors = work.admitted.rows("errors").items()
    shards = [shard for shard, n in errors if n and work.shard in (shard, relation_of(shard))]
    too_long = [work.admitted.read("errors", shard) for shard in shards]
    if too_long:
        rows = rows.join(pl.concat(too_long), on="prompt_id", how="anti", maintain_order="left")
    return work.question.select_asked_rows(work.shard, rows)


def other_prompt(work: Work, suspects: Sequence[str]) -> pl.DataFrame:
    """One prompt of the shard that is not a suspect; empty if there is none."""
    rows = read_prompts(work)
    innocent = rows.filter(~pl.col("prompt_id").is_in(suspects))
    n = innocent.height if rows.height > 1 else 0
    return innocent.slice((n - 1) // max(1, len(suspects)), 1) if n else innocent.head(0)


def find_unanswered(items: Sequence[Work]) -> list[pl.DataFrame]:
    """The prompt_id of all prompts of open shards without an answer in the chunks."""

    def read(work: Work) -> pl.DataFrame:
        rows = _drop_too_long(work, work.prompts.read(work.source, work.shard)).select("prompt_id")
        read_chunk = partial(work.artifact.read_chunk, work.table, work.chunks)
        chunks = work.artifact.store.each(read_chunk, work.artifact.list_published(work.chunks))
        for finished in (*(frame for frame, _ in chunks), read_refusals(work)):
            rows = rows.join(finished, on="prompt_id", how="anti", maintain_order="left")
        return rows

    return items[0].artifact.store.each(read, items) if items else []


def count_left(items: Sequence[Work]) -> list[int]:
    """The number of prompts of each shard without an answer; every artifact is listed once.

    Chunks are counted by their names, but read where a part of the prompts is asked: there they
    hold answers to other parts, too.
    """
    if not items:
        return []
    store = items[0].artifact.store
    artifacts = list({work.artifact.folder: work.artifact for work in items}.values())
    listings = store.each(Artifact.all_published, artifacts)
    published = dict(zip((artifact.folder for artifact in artifacts), listings, strict=True))
    parts = [work for work in items if work.question.part is not None]
    n_left = {
        work.name: rows.height for work, rows in zip(parts, find_unanswered(parts), strict=True)
    }
    # Blocks of samples ask the same prompts.
    by_prompts = {_prompts_key(work): work for work in items if work.question.part is None}
    n_asked = store.each(count_asked, list(by_prompts.values()))
    n_prompts = dict(zip(by_prompts, n_asked, strict=True))

    def count(work: Work) -> int:
        listing = published[work.artifact.folder]
        if work.shard in listing.get(work.table, ()):
            return 0
        if work.question.part is not None:
            return n_left[work.name]
        refusals = listing.get(work.refusals, ())
        n_refused = read_refusals(work, refusals).height if refusals else 0
        names = [name.partition("-") for name in listing.get(work.chunks, ())]
        n_answered = sum(int(n_rows) for n_rows, dash, _ in names if dash)
        # Two engines that lost sight of each other may have answered the same prompts.
        return max(0, n_prompts[_prompts_key(work)] - n_answered - n_refused)

    return [count(work) for work in items]


def _prompts_key(work: Work) -> tuple[object, ...]:
    shard = (work.prompts.folder, work.admitted.folder, work.source, work.shard)
    return (*shard, work.question.n_ranked, work.question.task.shares_answers)


def count_asked(work: Work) -> int:
    """The number of prompts of the shard to ask: of the table `prompts` from the manifest."""
    if work.source != "prompts":
        return _drop_too_long(work, work.prompts.read(work.source, work.shard)).height
    n_too_long = work.admitted.rows("errors").get(work.shard, 0)
    return int(work.prompts.counts("prompts")[work.shard]["distinct"]) - n_too_long


def read_refusals(work: Work, names: Sequence[str] | None = None) -> pl.DataFrame:
    """The error rows of an open shard, from these chunks or all."""
    names = work.artifact.list_published(work.refusals) if names is None else names
    read = partial(work.artifact.read_chunk, "errors", work.refusals)
    return concat_distinct("errors", map(read, names))


def concat_distinct(table: str, chunks: Iterable[tuple[pl.DataFrame, Counts]]) -> pl.DataFrame:
    """The rows of chunks, the first of each prompt: two engines may have answered the same one."""
    rows = [empty(table), *(frame for frame, _ in chunks)]
    return pl.concat(rows).unique("prompt_id", keep="first")


def is_published(work: Work) -> bool:
    """Whether the shard is published, by any engine."""
    return work.artifact.has(work.table, work.shard)


def list_work(plan: Plan) -> list[Work]:
    """The shards that are not answered yet; the prompts must be complete."""
    return [item for branch in plan.branches for item in list_branch_work(plan.run, branch)]


def sum_costs(plan: Plan) -> float:
    """The cost of a plan's answers so far, of whichever run."""
    return sum(float(counts.get("cost", 0)) for counts in read_counts(plan.outputs))


def requests_per_prompt(plan: Plan) -> float | None:
    """The mean number of requests for the samples of a prompt so far; null: no samples yet."""
    samples = (artifact for artifact in plan.outputs if artifact.stage == "samples")
    sums = sum_counts(read_counts(samples))
    if not sums["answers"]:
        return None
    n_prompts = sums[f"{WITHOUT}n"]
    return sums[REQUESTS] / n_prompts if n_prompts else 1.0


def read_counts(artifacts: Iterable[Artifact]) -> Iterator[Counts]:
    """The counts of all published shards of some artifacts, and of the chunks of open ones."""
    for artifact in artifacts:
        yield from artifact.counts(artifact.stage).values()
        for folder, chunk in artifact.chunks(artifact.stage):
            yield artifact.footer(artifact.stage, chunk, folder).counts


def add_lease(artifact: Artifact, leases: Mapping[str, Lease]) -> Artifact:
    """The artifact as its holder publishes it."""
    return replace(artifact, lease=leases.get(artifact.folder))


def list_branch_work(run: Run, branch: Branch) -> Iterator[Work]:
    """The shards of a setting that are not answered yet; its prompts must be complete."""
    for artifact, question in branch.list_questions():
        for shard in _list_missing_shards(artifact, branch.prompts, question):
            yield Work(
                artifact=artifact,
                prompts=branch.prompts,
                admitted=branch.admitted,
                shard=shard,
                model=branch.weights.model.name,
                question=question,
                rows_per_chunk=run.cluster.rows_per_chunk,
                seconds_per_chunk=run.cluster.seconds_per_chunk,
                max_deaths=run.cluster.max_deaths,
                max_failed_share=run.decoding.max_failed_share,
                hardware=hardware(run),
            )


def begin(branch: Branch, artifact: Artifact) -> None:
    """Begin an artifact that engines write.

    Raises:
        InputError: it has answers to prompts in other shards.
    """
    artifact.begin()
    check_inputs(artifact, [branch.prompts, branch.admitted], is_asked=True)


def finish(branch: Branch, artifact: Artifact, question: Question) -> None:
    """Complete an artifact whose shards are all answered; it stays open if a part was asked.

    Raises:
        DamagedFileError: a shard is damaged, missing, or one too many.
    """
    if question.part is not None:
        return
    shards = branch.prompts.shards(question.source)
    artifact.finish(
        [question.table, *question.extra_tables, "errors"],
        made_of=(branch.prompts, branch.admitted),
        expected_shards={question.table: shards},
    )


def finish_all(plan: Plan, leases: Mapping[str, Lease], folder: str | None = None) -> None:
    """Complete all artifacts of engines, or that in a `folder` if no shard of it is missing.

    Raises:
        DamagedFileError: a shard is damaged, missing, or one too many.
    """
    for branch in plan.branches:
        for artifact, question in branch.list_questions():
            if folder not in (None, artifact.folder) or artifact.is_complete():
                continue
            if folder is None or not _list_missing_shards(artifact, branch.prompts, question):
                finish(branch, add_lease(artifact, leases), question)


def _list_missing_shards(output: Artifact, prompts: Artifact, question: Question) -> list[str]:
    if output.is_complete():
        return []
    published = set(output.shards(question.table)) - find_trials(output, question.table)
    return [shard for shard in question.shards(prompts) if shard not in published]


def find_trials(artifact: Artifact, table: str) -> set[str]:
    """The shards of a table that have a trial: begun, but not yet published and cleaned up."""
    names = artifact.store.names(f"{artifact.folder}/trials/{table}")
    return {name.removesuffix(".json") for name in names}

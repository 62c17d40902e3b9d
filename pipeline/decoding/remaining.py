"""What engines have not answered yet, and have cost; how what they write begins and ends."""

from collections import Counter
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
from factsweep.pipeline.storage.shard import Counts, numbers


@dataclass(frozen=True)
class Work:
    """A shard to decode: what an engine is handed, in place of the rows themselves."""

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
        """The table that is written."""
        return self.artifact.stage

    @property
    def source(self) -> str:
        """The table of prompts that the shard is one of."""
        return self.question.source

    @property
    def open_name(self) -> str:
        """Where what belongs to the open shard lies."""
        return f"{self.table}/{self.shard}"

    @property
    def chunks(self) -> str:
        """The table that the shard's finished chunks lie in, while it is open."""
        return f"chunks/{self.open_name}"

    @property
    def name(self) -> str:
        """What messages and counts call the shard."""
        return f"{self.artifact.folder}/{self.open_name}"

    def n_answers(self, n_prompts: int) -> int:
        """How many answers so many prompts get."""
        return n_prompts * self.question.task.answers_per_prompt

    @property
    def thoughts(self) -> str:
        """The table that what was thought before the answers lies in meanwhile."""
        return f"chunks/thoughts/{self.shard}"

    @property
    def refusals(self) -> str:
        """The table that those prompts lie in meanwhile that were refused an answer."""
        return f"chunks/errors/{self.shard}"


def todo(work: Work) -> pl.DataFrame:
    """The prompts of the shard that an engine is asked and that fit, with text, in prefix order."""
    return _fitting(work, with_text(work.prompts, work.source, work.shard))


def _fitting(work: Work, rows: pl.DataFrame) -> pl.DataFrame:
    """Those rows of the shard that an engine is asked and that fit."""
    errors = work.admitted.rows("errors").items()
    mine = [shard for shard, n in errors if n and work.shard in (shard, relation_of(shard))]
    refused = [work.admitted.read("errors", shard) for shard in mine]
    if refused:
        rows = rows.join(pl.concat(refused), on="prompt_id", how="anti", maintain_order="left")
    return work.question.asked_of(work.shard, rows)


def other_prompt(work: Work, suspects: Sequence[str]) -> pl.DataFrame:
    """One prompt of the shard that is none of the suspects; empty if it has no other."""
    rows = todo(work)
    others = rows.filter(~pl.col("prompt_id").is_in(suspects))
    n = others.height if rows.height > 1 else 0
    return others.slice((n - 1) // max(1, len(suspects)), 1) if n else others.head(0)


def _unanswered(work: Work) -> pl.DataFrame:
    """The prompts of an open shard that have no answer yet; which have one stands in the chunks."""
    rows = _fitting(work, work.prompts.read(work.source, work.shard)).select("prompt_id")
    read = partial(work.artifact.read_chunk, work.table, work.chunks)
    chunks = work.artifact.store.each(read, work.artifact.published(work.chunks))
    for done in (*(frame for frame, _ in chunks), refused(work)):
        rows = rows.join(done, on="prompt_id", how="anti", maintain_order="left")
    return rows


def left(items: Sequence[Work]) -> list[int]:
    """How many prompts of each shard have no answer yet: the files of an artifact are listed once.

    Of the tables of which a few prompts are asked each is read once, whoever asks for it. Where a
    part is asked the chunks are read, since other parts' answers lie in them, too.
    """
    if not items:
        return []
    store = items[0].artifact.store
    artifacts = list({each.artifact.folder: each.artifact for each in items}.values())
    listings = store.each(Artifact.all_published, artifacts)
    found = {each.folder: names for each, names in zip(artifacts, listings, strict=True)}
    parts = [each for each in items if each.question.part is not None]
    unanswered = zip(parts, store.each(_unanswered, parts), strict=True)
    lacking = {_shard(each): rows.height for each, rows in unanswered}
    kinds = {_kind(each): each for each in items if each.question.part is None}
    asked = dict(zip(kinds, store.each(n_asked, list(kinds.values())), strict=True))

    def lacks(work: Work) -> int:
        published = found[work.artifact.folder]
        if work.shard in published.get(work.table, ()):
            return 0
        if work.question.part is not None:
            return lacking[_shard(work)]
        parts = (published.get(folder, ()) for folder in (work.chunks, work.refusals))
        return _n_left(work, asked[_kind(work)], *parts)

    return [lacks(each) for each in items]


def n_lacking(items: Sequence[Work], needed: pl.DataFrame) -> int:
    """How many of some prompts have no answer yet; `items` are all open shards."""
    found = items[0].artifact.store.each(_unanswered, items) if items else ()
    return sum(each.join(needed, on="prompt_id", how="semi").height for each in found)


def _shard(work: Work) -> tuple[str, str]:
    return work.artifact.folder, work.shard


def _kind(work: Work) -> tuple[object, ...]:
    """What determines which prompts are asked: blocks of samples ask the same ones."""
    of = (work.prompts.folder, work.admitted.folder, work.source, work.shard)
    return (*of, work.question.n_ranked, work.question.task.shares_answers)


def n_asked(work: Work) -> int:
    """How many prompts of the shard an engine is asked, from the manifest if it has many."""
    if work.source != "prompts":
        return _fitting(work, work.prompts.read(work.source, work.shard)).height
    refused = work.admitted.rows("errors").get(work.shard, 0)
    return int(work.prompts.counts("prompts")[work.shard]["distinct"]) - refused


def _n_left(work: Work, n: int, chunks: Sequence[str], refusals: Sequence[str]) -> int:
    # Two engines that were cut off from each other may have answered the same prompts.
    n_refused = refused(work, refusals).height if refusals else 0
    return max(0, n - sum(_rows_of_chunk(work, each) for each in chunks) - n_refused)


def _rows_of_chunk(work: Work, name: str) -> int:
    """The rows of a chunk: its name begins with them."""
    rows, _, rest = name.partition("-")
    if rest and rows.isdigit():
        return int(rows)
    return work.artifact.footer(work.table, name, work.chunks).rows


def refused(work: Work, names: Sequence[str] | None = None) -> pl.DataFrame:
    """The error rows of the prompts that were refused an answer, while the shard is open."""
    names = work.artifact.published(work.refusals) if names is None else names
    read = partial(work.artifact.read_chunk, "errors", work.refusals)
    return one_per_prompt("errors", map(read, names))


def one_per_prompt(table: str, chunks: Iterable[tuple[pl.DataFrame, Counts]]) -> pl.DataFrame:
    """The rows of chunks, one per prompt: engines that were cut off may have answered the same."""
    rows = [empty(table), *(frame for frame, _ in chunks)]
    return pl.concat(rows).unique("prompt_id", keep="first")


def open_counts(artifact: Artifact) -> Iterator[Counts]:
    """What the finished chunks of an artifact's open shards took."""
    for folder, chunk in artifact.chunks(artifact.stage):
        yield artifact.footer(artifact.stage, chunk, folder).counts


def is_published(work: Work) -> bool:
    """Whether the shard is published, by whomever."""
    return work.artifact.has(work.table, work.shard)


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
        yield from open_counts(artifact)


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
        InputError: there are answers to prompts that were cut into other shards.
    """
    artifact.begin()
    check_inputs(artifact, [branch.prompts, branch.admitted], is_asked=True)


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


def with_trial(artifact: Artifact, table: str) -> set[str]:
    """The shards of a table that have a trial: begun, and not yet published and cleared."""
    names = artifact.store.names(f"{artifact.folder}/trials/{table}")
    return {name.removesuffix(".json") for name in names}

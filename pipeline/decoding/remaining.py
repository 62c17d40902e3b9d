"""What remains of a shard: its prompts that are asked and have no answer yet."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import polars as pl

from factsweep.operators.schemas import empty
from factsweep.pipeline.decoding.work import Work
from factsweep.pipeline.stages.expand import relation_of, with_text
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.shard import Counts


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

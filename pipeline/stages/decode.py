"""decode: prompts × a model → answers, one shard at a time, whatever is asked of the engine.

An open shard keeps its finished answers as chunks; when the last prompt is answered, the chunks
become the shard. What is published is done, and is never decoded again: whether it is, an engine
asks before it begins and before it publishes.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any
from uuid import uuid4

import polars as pl

from operators.engines.prices import Prices, Purse
from operators.engines.protocol import ScoreRequest
from operators.errors import DecodingError, FactsweepError, InputError, StoppedError
from operators.schemas import empty
from pipeline.machine import processor
from pipeline.stages import trial
from pipeline.stages.expand import relation_of, with_text
from pipeline.stages.question import Question
from pipeline.storage.artifact import Artifact
from pipeline.storage.shard import Counts, Footer, numbers

_REPORT_EVERY_S = 0.5
_PAID_CHUNK = 32  # answers that are paid for are kept sooner: a killed run would pay for them again
_MAX_CONDEMNED = 3  # a shard's: more of them than this, or than may fail, have another cause

BROKE = "the next request might exceed max_cost"
# Told what was done since the last time; says whether to stop.
Report = Callable[[dict[str, float]], bool]


@dataclass(frozen=True)
class Hardware:
    """What one engine holds; `gpus` and `cores` are those that its seconds are paid for.

    `named` stands in the counts in place of what the engine finds itself on.
    """

    gpus: int
    cores: int
    tensor_parallel: int
    named: str | None = None
    per_gpu: int = 1
    prices: Prices | None = None  # of a server that counts tokens instead

    @property
    def name(self) -> str:
        """What its seconds were measured on; asked where the engine is."""
        return self.named or processor.name(self.gpus)


@dataclass(frozen=True)
class Work:
    """A shard to decode: what an engine is handed, in place of the rows themselves.

    `chosen` names the prompts of it that are asked, after which it stays open; null: all are.
    """

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
    chosen: Artifact | None = None

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
    def refusals(self) -> str:
        """The table that those prompts lie in meanwhile that were refused an answer."""
        return f"chunks/errors/{self.shard}"


def of_budget(work: Work, rows: pl.DataFrame) -> pl.DataFrame:
    """Those rows of the shard that are asked, where a budget asks a part of it."""
    if work.chosen is None:
        return rows
    needed = work.chosen.read("needed", work.shard)
    return rows.join(needed, on="prompt_id", how="semi", maintain_order="left")


def todo(work: Work) -> pl.DataFrame:
    """The prompts of the shard that an engine is asked and that fit, with text, in prefix order."""
    return _fitting(work, with_text(work.prompts, work.source, work.shard))


def _fitting(work: Work, rows: pl.DataFrame) -> pl.DataFrame:
    """Those rows of the shard that an engine is asked and that fit."""
    mine = [
        shard
        for shard, n in work.admitted.rows("errors").items()
        if n and work.shard in (shard, relation_of(shard))
    ]
    refused = [work.admitted.read("errors", shard) for shard in mine]
    if refused:
        rows = rows.join(pl.concat(refused), on="prompt_id", how="anti", maintain_order="left")
    return work.question.asked(rows)


def other_prompt(work: Work, suspects: Sequence[str]) -> pl.DataFrame:
    """One prompt of the shard that is none of the suspects; empty if it has no other."""
    rows = todo(work)
    others = rows.filter(~pl.col("prompt_id").is_in(suspects))
    n = others.height if rows.height > 1 else 0
    return others.slice((n - 1) // max(1, len(suspects)), 1) if n else others.head(0)


def n_left(work: Work) -> int:
    """How many prompts of the shard have no answer yet, from listings where it has many."""
    if is_published(work):
        return 0
    if work.chosen is not None:
        return _n_chosen_left(work)
    chunks, refusals = map(work.artifact.published, (work.chunks, work.refusals))
    return _n_left(work, n_asked(work), chunks, refusals)


def _n_chosen_left(work: Work) -> int:
    """How many prompts of a budget have no answer yet: which are answered stands in the chunks.

    One more, where all of the shard are answered: it is to be published.
    """
    rows = _fitting(work, work.prompts.read(work.source, work.shard))
    read = partial(work.artifact.read_chunk, work.table, work.chunks)
    chunks = work.artifact.store.each(read, work.artifact.published(work.chunks))
    for done in (*(frame for frame, _ in chunks), _refused(work)):
        rows = rows.join(done, on="prompt_id", how="anti", maintain_order="left")
    return of_budget(work, rows).height if rows.height else 1


def left(items: Sequence[Work]) -> list[int]:
    """How many prompts of each shard have no answer yet: the files of an artifact are listed once.

    Of the tables of which a few prompts are asked each is read once, whoever asks for it.
    """
    if not items:
        return []
    store = items[0].artifact.store
    artifacts = list({each.artifact.folder: each.artifact for each in items}.values())
    listings = store.each(Artifact.all_published, artifacts)
    found = {each.folder: names for each, names in zip(artifacts, listings, strict=True)}
    kinds = {_kind(each): each for each in items}
    asked = dict(zip(kinds, store.each(n_asked, list(kinds.values())), strict=True))
    return [_left(each, asked[_kind(each)], found[each.artifact.folder]) for each in items]


def _left(work: Work, n: int, published: Mapping[str, Sequence[str]]) -> int:
    if work.shard in published.get(work.table, ()):
        return 0
    if work.chosen is not None:
        return _n_chosen_left(work)
    return _n_left(work, n, published.get(work.chunks, ()), published.get(work.refusals, ()))


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
    n_refused = _refused(work, refusals).height if refusals else 0
    return max(0, n - sum(_rows_of_chunk(work, each) for each in chunks) - n_refused)


def _rows_of_chunk(work: Work, name: str) -> int:
    """The rows of a chunk: its name begins with them."""
    rows, _, rest = name.partition("-")
    return int(rows) if rest and rows.isdigit() else _chunk(work, name).rows


def _refused(work: Work, names: Sequence[str] | None = None) -> pl.DataFrame:
    """The error rows of the prompts that were refused an answer, while the shard is open."""
    read = work.artifact.read_chunk
    names = work.artifact.published(work.refusals) if names is None else names
    found = [read("errors", work.refusals, each)[0] for each in names]
    return pl.concat([empty("errors"), *found]).unique("prompt_id", keep="first")


def _chunk(work: Work, name: str) -> Footer:
    return work.artifact.footer(work.table, name, work.chunks)


def open_counts(artifact: Artifact) -> Iterator[Counts]:
    """What the finished chunks of an artifact's open shards took."""
    table = artifact.stage
    for shard in artifact.store.folders(f"{artifact.folder}/chunks/{table}"):
        folder = f"chunks/{table}/{shard}"
        for chunk in artifact.published(folder):
            yield artifact.footer(table, chunk, folder).counts


def is_published(work: Work) -> bool:
    """Whether the shard is published, by whomever."""
    return work.artifact.has(work.table, work.shard)


def decode(
    work: Work, engine: Any, tokenizer: Any, report: Report, purse: Purse | None = None
) -> None:
    """Answer the prompts of a shard that have no answer yet, and publish it.

    What a server charges is paid from the purse, if there is one.

    Raises:
        InputError: a server answers nothing, or a model what is no number; what is finished is
            published, as in all cases.
        StoppedError: the report said so, or the purse is empty.
        DecodingError: engines die of more prompts than can be by chance.
        ArtifactHeldError: another driver has taken the artifact over.
    """
    rows = todo(work)
    if not is_published(work):
        try:
            if not _answer(work, rows, Feed(engine, work, purse), tokenizer, report):
                report({"shards": 1})
                return
        except FileNotFoundError:
            if not is_published(work):  # else another engine has, and clears its chunks away
                raise
    report({"shards": 1, "errors": _settle(work, rows)})


def _answer(work: Work, rows: pl.DataFrame, feed: "Feed", tokenizer: Any, report: Report) -> bool:
    """Answer what is left of the shard, or of a budget in it; whether it could be published."""
    tally = _Tally(report, work.hardware)
    shard = _OpenShard(work, rows, tally, feed.chunk(work.rows_per_chunk))
    while not (left := of_budget(work, shard.left())).is_empty():
        shard.narrow(left)
        group = shard.attempt(left)
        try:
            for row, counts, error in work.question.task.answered(group, feed.engine, tokenizer):
                _check_numbers(work, row)
                if tally.count(counts):
                    feed.close()
                shard.keep(row, error)
                if not feed.drains:
                    break
        except FactsweepError:
            shard.pause()
            raise
        if feed.closed:
            shard.pause()
            raise StoppedError("stopped; the next run resumes from what is published.")
        if feed.is_broke():
            shard.pause()
            raise StoppedError(BROKE)
        shard.survived()
    tally.flush()
    if not shard.left().is_empty():
        shard.leave()
        return False
    shard.publish()
    return True


def _check_numbers(work: Work, row: Mapping[str, Any]) -> None:
    """Refuse an answer that is no number."""
    if not _has_numbers(row):
        raise InputError(
            f"{work.model} says of prompt {row['prompt_id']} what is no number (NaN), so "
            "its type overflows or its weights are damaged; check them, or give another "
            "model.dtype, such as float32."
        )


def _has_numbers(value: Any) -> bool:
    """Whether all numbers of an answer are some."""
    if isinstance(value, Mapping):
        return all(map(_has_numbers, value.values()))
    if isinstance(value, list):
        return all(map(_has_numbers, value))
    return not (isinstance(value, float) and math.isnan(value))


class Feed:
    """Hands an engine its requests until it is closed.

    What a server has under way is paid for: its answers are waited for when the run is to stop.
    Those of an engine of our own are dropped.
    """

    def __init__(self, engine: Any, work: Work, purse: Purse | None) -> None:
        self._engine = engine
        self._is_paid = bool(getattr(engine, "is_paid", False))
        self._prices = work.hardware.prices
        self._purse = purse if self._is_paid and self._prices else None
        self._reserved: dict[str, float] = {}
        self._refused, self._admitted = False, 0
        self.closed = False

    @property
    def engine(self) -> Any:
        """What is asked in place of the engine."""
        return self if self._is_paid else self._engine

    @property
    def drains(self) -> bool:
        """Whether answers are still to be taken."""
        return self._is_paid or not self.closed

    def chunk(self, rows: int) -> int:
        """How many answers are kept together, of the number that was asked for."""
        return min(rows, _PAID_CHUNK) if self._is_paid else rows

    def close(self) -> None:
        """Hand out no more."""
        self.closed = True

    def is_broke(self) -> bool:
        """Whether there was no money for a single request more."""
        return self._refused and not self._admitted

    def answers(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's answers."""
        return self._said(self._engine.answers, requests)

    def scores(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's scores."""
        return self._said(self._engine.scores, requests)

    def preferences(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's preferences; what these cost is not known beforehand."""
        yield from self._engine.preferences(takewhile(lambda _: not self.closed, requests))

    def _said(self, ask: Callable[..., Iterator[Any]], requests: Iterable[Any]) -> Iterator[Any]:
        self._refused, self._admitted = False, 0
        for answer in ask(takewhile(self._may_go, requests)):
            if self._purse is not None:
                self._purse.settle(self._reserved.pop(answer.request_id), self._cost(answer))
            yield answer

    def _may_go(self, request: Any) -> bool:
        """Whether a request may be sent: not when it is to end, nor without the money for it."""
        if self.closed:
            return False
        if self._purse is not None and self._prices is not None:
            most = _most(self._prices, request)
            if not self._purse.reserve(most):
                self._refused = True
                return False
            self._reserved[request.request_id] = most
        self._admitted += 1
        return True

    def _cost(self, answer: Any) -> float:
        assert self._prices is not None
        return self._prices.of(answer.n_prompt_tokens, answer.n_output_tokens or 0)


def _most(prices: Prices, request: Any) -> float:
    """What an answer costs at most: a text's score costs its tokens, and one more."""
    if isinstance(request, ScoreRequest):
        return prices.of(len(request.token_ids), 1)
    return prices.at_most(request.text, request.most_output_tokens)


def _settle(work: Work, rows: pl.DataFrame) -> int:
    """Publish what a published shard lacks as error rows, and clear away what it was made of.

    Returns how many rows it lacks. The trial goes last: a shard that has one is not settled.
    """
    asked = rows.select("prompt_id")
    answers = work.artifact.read(work.table, work.shard)
    errors = _errors(work, asked.join(answers, on="prompt_id", how="anti", maintain_order="left"))
    if not errors.is_empty():
        work.artifact.write("errors", work.shard, errors)
    names = [
        f"{folder}/{chunk}.parquet"
        for folder in (work.chunks, work.refusals)
        for chunk in work.artifact.published(folder)
    ]
    work.artifact.drop_all(names)
    trial.drop(work.artifact, work.open_name)
    return errors.height


def _errors(work: Work, unanswered: pl.DataFrame) -> pl.DataFrame:
    """Why each has no answer: it was refused one, or engines died of it."""
    died = unanswered.select(
        "prompt_id",
        stage=pl.lit("decode"),
        reason=pl.lit("engine_died"),
        detail=pl.lit(f"{work.max_deaths} engines died while they answered it alone"),
    )
    return died.update(_refused(work), on="prompt_id", how="left")


class _OpenShard:
    """A shard while it is decoded: its answers so far, its chunks and its trial."""

    def __init__(
        self, work: Work, rows: pl.DataFrame, tally: "_Tally", rows_per_chunk: int
    ) -> None:
        self._work = work
        self._rows_per_chunk = rows_per_chunk
        self._rows = rows
        self._tally = tally
        chunks = work.artifact.published(work.chunks)
        read = partial(work.artifact.read_chunk, work.table, work.chunks)
        published = work.artifact.store.each(read, chunks)
        self._spent = [counts for _, counts in published]
        # Two engines that were cut off from each other may have answered the same prompts.
        rows_of_all = [empty(work.table), *(frame for frame, _ in published)]
        self._kept = pl.concat(rows_of_all).unique("prompt_id", keep="first")
        self._buffer: list[dict[str, Any]] = []
        self._refused = _refused(work)
        self._refusals: list[dict[str, Any]] = []
        self._trial = trial.read(work.artifact, work.open_name)
        self._flushed = time.monotonic()

    def left(self) -> pl.DataFrame:
        """The prompts that have no answer, were not refused one, and are not condemned."""
        refused = pl.concat([self._refused, _frame("errors", self._refusals)])
        rows = self._rows.join(self._answers(), on="prompt_id", how="anti", maintain_order="left")
        rows = rows.join(refused, on="prompt_id", how="anti", maintain_order="left")
        return rows.filter(~pl.col("prompt_id").is_in(self._trial.condemned))

    def _answers(self) -> pl.DataFrame:
        return pl.concat([self._kept, _frame(self._work.table, self._buffer)])

    def narrow(self, left: pl.DataFrame) -> None:
        """Suspect fewer prompts, if the current ones have seen too many engines die."""
        self._trial = self._trial.narrowed(left["prompt_id"].to_list(), self._work.max_deaths)
        condemned = len(self._trial.condemned)
        if condemned > max(_MAX_CONDEMNED, self._work.max_failed_share * self._rows.height):
            raise DecodingError(
                f"shard {self._work.shard}: engines die of {condemned} of its "
                f"{self._rows.height} prompts."
            )

    def attempt(self, left: pl.DataFrame) -> pl.DataFrame:
        """Note that an attempt begins; returns the prompts to answer in it."""
        ids = self._trial.current(left["prompt_id"].to_list())
        self._trial = self._trial.attempted()
        trial.write(self._work.artifact, self._work.open_name, self._trial)
        return left.filter(pl.col("prompt_id").is_in(ids))

    def survived(self) -> None:
        """The attempt is over, and the engine lives."""
        self._trial = self._trial.survived()

    def keep(self, row: dict[str, Any], error: Mapping[str, str] | None = None) -> None:
        """Keep an answer, or why there is none.

        A full buffer is published as a chunk, and one that is old enough.
        """
        if error is None:
            self._buffer.append(row)
        else:
            self._refusals.append({**error, "stage": "decode"})
        is_old = time.monotonic() - self._flushed >= self._work.seconds_per_chunk
        if is_old or len(self._buffer) + len(self._refusals) >= self._rows_per_chunk:
            self.flush()

    def flush(self) -> None:
        """Publish what is finished as a chunk, under a name that no other engine uses.

        What was refused goes first: the counts, which are the answers' chunk's, cover both.
        """
        if self._refusals:
            frame = _frame("errors", self._refusals)
            self._work.artifact.write_chunk("errors", self._work.refusals, uuid4().hex, frame)
            self._refused = pl.concat([self._refused, frame])
        if self._buffer or self._refusals:
            self._refusals = []
            frame = _frame(self._work.table, self._buffer)
            counts = self._take()
            name = f"{frame.height}-{uuid4().hex}"
            self._work.artifact.write_chunk(
                self._work.table, self._work.chunks, name, frame, counts
            )
            self._spent.append(counts)
            self._kept, self._buffer = pl.concat([self._kept, frame]), []
        self._flushed = time.monotonic()

    def pause(self) -> None:
        """Leave the shard open for another run; this attempt killed nobody."""
        self.flush()
        spared = replace(self._trial, begun=self._trial.begun - 1)
        trial.write(self._work.artifact, self._work.open_name, spared)

    def leave(self) -> None:
        """Leave the shard open: all of it that a budget asks is answered."""
        self.flush()
        trial.write(self._work.artifact, self._work.open_name, self._trial)

    def publish(self) -> None:
        """Publish the shard in the order of its prompts, unless another engine has.

        Its counts are those of its chunks, whichever run decoded them.
        """
        if self._refusals:
            self.flush()  # error rows are made of what is published
        work = self._work
        answered = self._rows.select("prompt_id").join(
            self._answers(), on="prompt_id", maintain_order="left"
        )
        work.artifact.write(work.table, work.shard, answered, self._counts())

    def _take(self) -> Counts:
        """What was done since the last time, and on what."""
        return {**self._tally.take(), "hardware": self._work.hardware.name}

    def _counts(self) -> Counts:
        spent = [*self._spent, *([self._take()] if self._buffer or not self._spent else [])]
        sums = Counter[str]()
        for each in spent:
            sums.update(numbers(each))
        names = sorted({str(each.get("hardware")) for each in spent})
        return {**sums, "model": self._work.model, "hardware": " + ".join(names)}


def _frame(table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=empty(table).schema)


class _Tally:
    """Counts what is answered: reported now and then, and kept with the chunk."""

    def __init__(self, report: Report, hardware: Hardware) -> None:
        self._report = report
        self._hardware = hardware
        self._pending, self._taken = Counter[str](), Counter[str]()
        self._reported, self._taken_at = -math.inf, time.monotonic()  # the first is told at once

    def count(self, counts: Mapping[str, float]) -> bool:
        """Count an answer; whether the report asks to stop."""
        self._pending.update(counts)
        self._taken.update(counts)
        return time.monotonic() - self._reported > _REPORT_EVERY_S and self.flush()

    def flush(self) -> bool:
        """Report what was counted since the last time; whether the report asks to stop."""
        pending, self._pending = self._pending, Counter()
        self._reported = time.monotonic()
        return self._report(dict(pending))

    def _cost(self, taken: Mapping[str, float]) -> dict[str, float]:
        """What the tokens cost, where somebody charges them."""
        prices = self._hardware.prices
        if prices is None:
            return {}
        return {"cost": prices.of(taken["prompt_tokens"], taken["output_tokens"])}

    def take(self) -> dict[str, float]:
        """What was counted since the last taking, and what it cost."""
        now = time.monotonic()
        seconds, self._taken_at = now - self._taken_at, now
        taken, self._taken = self._taken, Counter()
        return {
            **taken,
            **self._cost(taken),
            "seconds": seconds,
            "gpu_seconds": seconds * self._hardware.gpus / self._hardware.per_gpu,
            "core_seconds": seconds * self._hardware.cores,
            f"prompts at tensor_parallel={self._hardware.tensor_parallel}": taken["prompts"],
        }

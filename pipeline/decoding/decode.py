"""Decodes prompts, shard by shard, for any question.

An engine gets the first prompts of a shard while it answers the last ones of the shard before, so
that it is never idle. Answered shards are published by another thread.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import takewhile
from typing import Any

import polars as pl

from factsweep.operators.engines.protocol import ScoreRequest
from factsweep.operators.errors import (
    ArtifactHeldError,
    DecodingError,
    FactsweepError,
    InputError,
    StoppedError,
)
from factsweep.pipeline.decoding.engine import TimedEngine
from factsweep.pipeline.decoding.open_shard import OpenShard, build_death_errors
from factsweep.pipeline.decoding.progress_counter import CostLimit
from factsweep.pipeline.decoding.remaining_prompts import Work, read_refusals
from factsweep.pipeline.stages.question import AnswerRow

BROKE = "the next request might exceed max_cost"
# Returns the next open shard of the artifact after `begin`, or None.
Follow = Callable[[], OpenShard | None]


def alone() -> None:
    """No shard follows."""


class RequestFeed:
    """Hands requests to an engine until it is closed.

    After a stop, the answers of a server are still awaited, because they are paid for; those of
    other engines are dropped.
    """

    def __init__(self, engine: TimedEngine, work: Work, purse: CostLimit | None) -> None:
        self._engine = engine
        self._is_paid = engine.is_paid
        self._prices = work.hardware.prices
        self._purse = purse if self._is_paid and self._prices else None
        self._reserved: dict[str, float] = {}
        self._refused, self._admitted = False, 0
        self.is_closed = False

    @property
    def engine(self) -> Any:
        """The engine, or this in its place if requests cost money."""
        return self if self._is_paid else self._engine

    @property
    def drains(self) -> bool:
        """Whether answers are still to be taken."""
        return self._is_paid or not self.is_closed

    def check(self) -> None:
        """Raise a StoppedError if it is closed, or if there was no money for a single request."""
        if self.is_closed:
            raise StoppedError("stopped; the next run resumes from the published answers.")
        if self._refused and not self._admitted:
            raise StoppedError(BROKE)

    def answers(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's answers."""
        return self._ask_and_pay(self._engine.answers, requests)

    def scores(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's scores."""
        return self._ask_and_pay(self._engine.scores, requests)

    def preferences(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's preferences; their cost is not known beforehand."""
        yield from self._engine.preferences(takewhile(lambda _: not self.is_closed, requests))

    def _ask_and_pay(
        self, ask: Callable[..., Iterator[Any]], requests: Iterable[Any]
    ) -> Iterator[Any]:
        self._refused, self._admitted = False, 0
        for answer in ask(takewhile(self._can_admit, requests)):
            if self._purse is not None:
                assert self._prices is not None
                cost = self._prices.of(answer.n_prompt_tokens, answer.n_output_tokens or 0)
                self._purse.settle(self._reserved.pop(answer.request_id), cost)
            yield answer

    def _can_admit(self, request: Any) -> bool:
        """Whether a request may be sent; reserves the most that its answers may cost."""
        if self.is_closed:
            return False
        if self._purse is not None and self._prices is not None:
            if isinstance(request, ScoreRequest):  # costs its tokens, and one more
                cost = self._prices.of(len(request.token_ids), 1)
            else:  # a server that gives one sample per request reads the prompt for each
                n, most = request.sampling.n, request.most_output_tokens
                cost = float(n * self._prices.at_most(request.text, most // n))
            if not self._purse.reserve(cost):
                self._refused = True
                return False
            self._reserved[request.request_id] = cost
        self._admitted += 1
        return True


def answer(
    first: OpenShard,
    engine: TimedEngine,
    tokenizer: Any,
    follow: Follow = alone,
    purse: CostLimit | None = None,
) -> Iterator[OpenShard]:
    """Answer a shard and its followers; yields each when all its answers are kept.

    `follow` is called before the engine gets the last prompts of a shard. Servers are paid from the
    purse; there no shard follows.

    Raises:
        InputError: a server answers nothing, or a model returns NaN; finished answers are kept, as
            in all cases.
        StoppedError: a report asks to stop, or the purse is empty.
        DecodingError: engines die of more prompts than chance explains.
        ArtifactHeldError: another driver has taken the artifact over.
    """
    feed, open_shards = RequestFeed(engine, first.work, purse), [first]
    while open_shards:
        if open_shards[0].is_published or open_shards[0].pending_prompts().is_empty():
            yield open_shards.pop(0).close()
            continue
        running: list[OpenShard] = []
        groups = _prompt_groups(open_shards, running, alone if engine.is_paid else follow)
        try:
            for answered in first.work.question.task.answer_groups(groups, feed.engine, tokenizer):
                if (answered_shard := _keep(answered, running, feed)) is not None:
                    open_shards.remove(answered_shard)
                    yield answered_shard.close()
                if not feed.drains:
                    break
            feed.check()
        except ArtifactHeldError:
            raise  # the lease is lost: nothing may be written
        except FactsweepError:
            with ExitStack() as all_shards:
                for shard in running:
                    all_shards.callback(shard.pause)
            raise
        for shard in running:
            shard.note_survival()


def _prompt_groups(
    open_shards: list[OpenShard], running: list[OpenShard], follow: Follow
) -> Iterator[pl.DataFrame]:
    """The prompts for the engine: of the first open shard, then of its followers."""
    shard: OpenShard | None = open_shards[0]
    while shard is not None:
        prompts = shard.attempt()
        running.append(shard)
        yield prompts
        shard = follow() if shard.asks_all else None
        if shard is not None:
            open_shards.append(shard)


def _keep(answered: AnswerRow, running: list[OpenShard], feed: RequestFeed) -> OpenShard | None:
    """Keep an answer; returns its shard if no other prompt of it is owed.

    Chunks are published when they are full together, or old.
    """
    prompt_id = (answered.error or answered.row)["prompt_id"]
    shard = next((shard for shard in running if prompt_id in shard.owed), None)
    if shard is None:
        raise DecodingError(f"the engine answers {prompt_id}, which it was not asked.")
    if not _has_no_nan(answered.row):
        raise InputError(
            f"{shard.work.model} returns NaN for prompt {prompt_id}, so its type overflows or its "
            "weights are damaged; check them, or give another model.dtype, such as float32."
        )
    if shard.keep(prompt_id, answered):
        feed.is_closed = True
    if sum(shard.of_a_chunk for shard in running) >= 1:
        for neighbour in running:
            neighbour.flush()
    if shard.owed or not shard.asks_all:
        return None
    running.remove(shard)
    shard.note_survival()
    return shard


def _has_no_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, dict):  # a check for Mapping takes three times as long
        return all(map(_has_no_nan, value.values()))
    return not isinstance(value, list) or all(map(_has_no_nan, value))


def publish(shard: OpenShard) -> None:
    """Publish an answered shard with its error rows, then remove its chunks and its trial.

    A shard stays open if a part of it was asked. The trial is removed last: a shard that has one is
    opened again by the next run.

    Raises:
        ArtifactHeldError: another driver has taken the artifact over.
    """
    work, artifact = shard.work, shard.work.artifact
    if work.question.part is not None:
        shard.refuse_condemned()
        shard.report({"shards": 1})
        return
    is_published = shard.is_published
    answers = artifact.read(work.table, work.shard) if is_published else shard.publish()
    ids = shard.rows.select("prompt_id")
    unanswered = ids.join(answers, on="prompt_id", how="anti", maintain_order="left")
    if not unanswered.is_empty():
        errors = build_death_errors(work, unanswered)
        errors = errors.update(read_refusals(work), on="prompt_id", how="left")
        artifact.publish("errors", work.shard, errors)
    thoughts = [work.thoughts] if work.question.extra_tables else []
    folders = (work.chunks, work.refusals, *thoughts)
    chunks = zip(folders, artifact.store.each(artifact.list_published, folders), strict=True)
    artifact.drop(*(f"{folder}/{chunk}.parquet" for folder, names in chunks for chunk in names))
    artifact.drop(work.trial)
    shard.report({"shards": 1, "errors": unanswered.height})

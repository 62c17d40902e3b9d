"""decode: prompts × a model → answers, shard by shard, whatever is asked of the engine.

An engine is asked the first prompts of a shard while it answers the last ones of the shard before,
so that it never runs out of work. A shard all of whose answers are kept is published by somebody
else, beside the answering of others: who dies meanwhile loses none.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
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
from factsweep.pipeline.cluster.hardware import Prices
from factsweep.pipeline.decoding.engine import Clocked
from factsweep.pipeline.decoding.open_shard import OpenShard, died, drop_trial
from factsweep.pipeline.decoding.remaining import Work, refused
from factsweep.pipeline.decoding.tally import Purse
from factsweep.pipeline.stages.question import Answered

BROKE = "the next request might exceed max_cost"
# Gives the shard that is asked next, begun, if there is one of the same artifact.
Follow = Callable[[], OpenShard | None]


def alone() -> None:
    """No shard follows."""


class Feed:
    """Hands an engine its requests until it is closed.

    What a server has under way is paid for: its answers are waited for when the run is to stop.
    Those of an engine of our own are dropped.
    """

    def __init__(self, engine: Clocked, work: Work, purse: Purse | None) -> None:
        self._engine = engine
        self._is_paid = engine.is_paid
        self._prices = work.hardware.prices
        self._purse = purse if self._is_paid and self._prices else None
        self._reserved: dict[str, float] = {}
        self._refused, self._admitted = False, 0
        self.closed = False  # if it is, no more is handed out

    @property
    def engine(self) -> Any:
        """What is asked in place of the engine."""
        return self if self._is_paid else self._engine

    @property
    def drains(self) -> bool:
        """Whether answers are still to be taken."""
        return self._is_paid or not self.closed

    def check(self) -> None:
        """Refuse to go on where it is closed, or there was no money for a single request more."""
        if self.closed:
            raise StoppedError("stopped; the next run resumes from what is published.")
        if self._refused and not self._admitted:
            raise StoppedError(BROKE)

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
                assert self._prices is not None
                tokens = answer.n_prompt_tokens, answer.n_output_tokens or 0
                cost = self._prices.of(*tokens)
                self._purse.settle(self._reserved.pop(answer.request_id), cost)
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


def _most(prices: Prices, request: Any) -> float:
    """What an answer costs at most: a text's score costs its tokens, and one more."""
    if isinstance(request, ScoreRequest):
        return prices.of(len(request.token_ids), 1)
    # A server may give one sample per request, and then reads the prompt for each.
    n, most = request.sampling.n, request.most_output_tokens
    return float(n * prices.at_most(request.text, most // n))


def answer(
    first: OpenShard,
    engine: Clocked,
    tokenizer: Any,
    follow: Follow = alone,
    purse: Purse | None = None,
) -> Iterator[OpenShard]:
    """Answer a shard, and those that follow it; each, when all that is asked of it is kept.

    `follow` is called when the engine is handed the last prompts of a shard, or asks for more. What
    a server charges is paid from the purse, if there is one; there no shard follows.

    Raises:
        InputError: a server answers nothing, or a model what is no number; what is finished is
            kept, as in all cases.
        StoppedError: the report said so, or the purse is empty.
        DecodingError: engines die of more prompts than can be by chance.
        ArtifactHeldError: another driver has taken the artifact over.
    """
    feed, open_ = Feed(engine, first.work, purse), [first]
    while open_:
        if open_[0].is_published or open_[0].left().is_empty():
            yield open_.pop(0).close()
            continue
        at: list[OpenShard] = []
        groups = _groups(open_, at, alone if engine.is_paid else follow)
        try:
            for each in first.work.question.task.answered(groups, feed.engine, tokenizer):
                if (done := _kept(each, at, feed)) is not None:
                    open_.remove(done)
                    yield done.close()
                if not feed.drains:
                    break
            feed.check()
        except ArtifactHeldError:
            raise  # nothing of it is ours to write any more
        except FactsweepError:
            with ExitStack() as all_of_them:
                for shard in at:
                    all_of_them.callback(shard.pause)
            raise
        for shard in at:
            shard.survived()


def _groups(open_: list[OpenShard], at: list[OpenShard], follow: Follow) -> Iterator[pl.DataFrame]:
    """What the engine is asked: the first of the open shards, then those that follow it."""
    shard: OpenShard | None = open_[0]
    while shard is not None:
        asked = shard.attempt()
        at.append(shard)
        yield asked
        shard = follow() if shard.asks_all else None
        if shard is not None:
            open_.append(shard)


def _kept(each: Answered, at: list[OpenShard], feed: Feed) -> OpenShard | None:
    """Keep an answer; returns its shard if that was the last one it is owed.

    What is finished is published as chunks when it is one together, or old.
    """
    prompt_id = (each.error or each.row)["prompt_id"]
    shard = next((shard for shard in at if prompt_id in shard.owed), None)
    if shard is None:
        raise DecodingError(f"the engine answers {prompt_id}, which it was not asked.")
    if not _has_numbers(each.row):
        raise InputError(
            f"{shard.work.model} says of prompt {prompt_id} what is no number (NaN), so its type "
            "overflows or its weights are damaged; check them, or give another model.dtype, such "
            "as float32."
        )
    if shard.keep(prompt_id, each):
        feed.closed = True
    if sum(shard.of_a_chunk for shard in at) >= 1:
        for other in at:
            other.flush()
    if shard.owed or not shard.asks_all:
        return None
    at.remove(shard)
    shard.survived()
    return shard


def _has_numbers(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, dict):  # Mapping would take three times as long to ask
        return all(map(_has_numbers, value.values()))
    return not isinstance(value, list) or all(map(_has_numbers, value))


def publish(shard: OpenShard) -> None:
    """Publish a shard that is answered, or settle another's; one asked in part stays open.

    Raises:
        ArtifactHeldError: another driver has taken the artifact over.
    """
    work = shard.work
    if work.question.part is not None:
        shard.refuse_condemned()
        shard.report({"shards": 1})
        return
    there = partial(work.artifact.read, work.table, work.shard)
    answers = there() if shard.is_published else shard.publish()
    shard.report({"shards": 1, "errors": _settle(shard, answers)})


def _settle(shard: OpenShard, answers: pl.DataFrame) -> int:
    """Publish what a published shard lacks as error rows, and clear away what it was made of.

    Returns how many rows it lacks. The trial goes last: a shard that has one is not settled.
    """
    work, asked = shard.work, shard.rows.select("prompt_id")
    unanswered = asked.join(answers, on="prompt_id", how="anti", maintain_order="left")
    if not unanswered.is_empty():
        errors = died(work, unanswered).update(refused(work), on="prompt_id", how="left")
        work.artifact.publish("errors", work.shard, errors)
    thoughts = [work.thoughts] if work.question.further else []
    folders = (work.chunks, work.refusals, *thoughts)
    chunks = work.artifact.store.each(work.artifact.published, folders)
    found = zip(folders, chunks, strict=True)
    names = [f"{folder}/{chunk}.parquet" for folder, each in found for chunk in each]
    work.artifact.drop(*names)
    drop_trial(work.artifact, work.open_name)
    return unanswered.height

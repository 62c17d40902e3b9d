"""decode: an engine begins the next shard before the last answers of the one before.

The engine is fake: these tests are about scheduling, and need no model.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Request
from factsweep.operators.errors import DecodingError, InputError, StoppedError
from factsweep.pipeline.decoding import decode, open_shard, remaining_prompts
from factsweep.pipeline.decoding.decode import Follow
from factsweep.pipeline.decoding.engine import TimedEngine
from factsweep.pipeline.decoding.open_shard import OpenShard, Report
from factsweep.pipeline.decoding.remaining_prompts import Work, list_work
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.stages.plan import Plan
from tests.messages import naming
from tests.pipeline.here import decode_here, opened

ROOM = 5


class Deep(FakeEngine):
    """Takes some requests at a time, as vLLM does; answers the oldest of them, or the newest."""

    def __init__(self, *, newest: bool = False, dies_at: int | None = None) -> None:
        super().__init__()
        self.taken: list[str] = []
        self.given: list[str] = []
        self._newest, self._dies_at = newest, dies_at

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        waiting, running = iter(requests), deque[Request]()
        while True:
            while len(running) < ROOM and (request := next(waiting, None)) is not None:
                running.append(request)
                self.taken.append(request.request_id)
            if not running:
                return
            if len(self.given) == self._dies_at:
                raise RuntimeError("the engine died")
            request = running.pop() if self._newest else running.popleft()
            self.given.append(request.request_id)
            yield from super().answers([request])


@pytest.fixture
def items(prepared: Plan) -> list[Work]:
    """Two shards of one artifact, each of more prompts than the engine takes at a time."""
    items_ = [item for item in list_work(prepared) if item.table == "generations"][:2]
    assert min(remaining_prompts.read_prompts(item).height for item in items_) > ROOM
    return items_


def one_after_the_other(
    plan: Plan, items: Sequence[Work], engine: FakeEngine, report: Report = lambda _: False
) -> Iterator[OpenShard]:
    """Answer the first, and have the others follow it."""
    clocked, shards = TimedEngine(engine), [opened(item) for item in items]
    for shard in shards:
        shard.begin(clocked, report)
    following = iter(shards[1:])
    follow: Follow = lambda: next(following, None)  # noqa: E731
    return decode.answer(shards[0], clocked, tokenizer(plan.weights), follow)


def ids(item: Work) -> list[str]:
    return list(remaining_prompts.read_prompts(item)["prompt_id"])


@pytest.mark.parametrize("newest", [False, True])
def test_engine_is_asked_the_next_shard_before_it_has_answered_all_of_the_one_before(
    prepared: Plan, items: list[Work], newest: bool
) -> None:
    expected = []
    for item in items:
        decode_here(item, FakeEngine(), tokenizer(prepared.weights), lambda _: False)
        expected.append(item.artifact.read("generations", item.shard))
        item.artifact.drop(f"generations/{item.shard}.parquet")
    engine, handed_on = Deep(newest=newest), list[tuple[Work, int]]()
    for shard in one_after_the_other(prepared, items, engine):
        handed_on.append((shard.work, len(engine.taken) - len(engine.given)))
        decode.publish(shard)
    assert engine.taken == [*ids(items[0]), *ids(items[1])]  # nothing twice
    assert handed_on == [(items[newest], ROOM - 1), (items[not newest], 0)]
    for item, rows in zip(items, expected, strict=True):
        assert_frame_equal(item.artifact.read("generations", item.shard), rows)
        assert item.artifact.footer("generations", item.shard).counts["answers"] == rows.height
        assert item.artifact.list_published(item.chunks) == []


def test_engine_that_dies_at_two_shards_loses_of_each_what_was_not_kept(
    prepared: Plan, items: list[Work]
) -> None:
    items = [replace(item, rows_per_chunk=1) for item in items]
    n = len(ids(items[0])) - 2
    with pytest.raises(RuntimeError):
        list(one_after_the_other(prepared, items, Deep(dies_at=n)))
    for item in items:
        assert open_shard.read_trial(item) == open_shard.Trial(begun=1)
    assert [opened(item).n_left for item in items] == [2, len(ids(items[1]))]
    engine = Deep()
    for item in items:
        assert not opened(item).killed_nobody
        decode_here(item, engine, tokenizer(prepared.weights), lambda _: False)
    assert engine.taken == [*ids(items[0])[-2:], *ids(items[1])]


def test_engine_that_dies_at_two_shards_loses_less_than_a_chunk_in_all(
    prepared: Plan, items: list[Work]
) -> None:
    n_first = len(ids(items[0]))
    size = n_first - 1  # all of the first but ROOM - 1 are answered, then those of the second
    items = [replace(item, rows_per_chunk=size) for item in items]
    with pytest.raises(RuntimeError):
        list(one_after_the_other(prepared, items, Deep(newest=True, dies_at=n_first + 1)))
    n_left = [opened(item).n_left for item in items]
    assert n_left == [ROOM - 1, len(ids(items[1])) - (size - (n_first - ROOM + 1))]


def test_shards_are_all_paused_where_the_store_refuses_one(
    prepared: Plan, items: list[Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    pause, paused = OpenShard.pause, list[str]()

    def refused(shard: OpenShard) -> None:
        paused.append(shard.work.shard)
        pause(shard)
        raise InputError("the disk is full")

    monkeypatch.setattr(OpenShard, "pause", refused)
    monkeypatch.setattr("factsweep.pipeline.decoding.open_shard._REPORT_EVERY_S", -1.0)
    engine, n = Deep(newest=True), len(ids(items[0]))
    with pytest.raises(InputError):
        list(one_after_the_other(prepared, items, engine, lambda _: len(engine.given) >= n))
    assert sorted(paused) == sorted(item.shard for item in items)


class Stuttering(FakeEngine):
    """Answers each request twice."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        for answer in super().answers(requests):
            yield from (answer, answer)


def test_answer_that_nobody_is_owed_ends_the_run_and_blames_no_prompt(
    prepared: Plan, items: list[Work]
) -> None:
    item = items[0]
    with pytest.raises(DecodingError, match=naming(ids(item)[0], "not asked")):
        decode_here(item, Stuttering(), tokenizer(prepared.weights), lambda _: False)
    assert open_shard.read_trial(item) == open_shard.Trial()


def test_prompt_that_is_condemned_is_not_asked_once_more(prepared: Plan, items: list[Work]) -> None:
    item, engine = replace(items[0], max_deaths=1, max_failed_share=1.0), Deep()
    poison, *other_ids = ids(item)
    open_shard.write_trial(item, open_shard.Trial(begun=1, queue=((poison,),)))
    decode_here(item, engine, tokenizer(prepared.weights), lambda _: False)
    assert engine.taken == other_ids


def test_stop_between_two_shards_keeps_what_is_answered_of_both(
    prepared: Plan, items: list[Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, n = Deep(newest=True), len(ids(items[0])) + 1
    monkeypatch.setattr("factsweep.pipeline.decoding.open_shard._REPORT_EVERY_S", -1.0)
    with pytest.raises(StoppedError):
        list(one_after_the_other(prepared, items, engine, lambda _: len(engine.given) >= n))
    n_kept = [len(ids(item)) - opened(item).n_left for item in items]
    assert sum(n_kept) == n == len(engine.given)
    assert min(n_kept) > 0
    for item in items:
        assert open_shard.read_trial(item) == open_shard.Trial()


def test_no_shard_follows_one_whose_prompts_are_asked_in_groups(
    prepared: Plan, items: list[Work]
) -> None:
    first, other = (replace(item, max_deaths=1) for item in items)
    open_shard.write_trial(first, open_shard.Trial(begun=1))
    engine = Deep()
    shards = list(one_after_the_other(prepared, [first, other], engine))
    assert [shard.work for shard in shards] == [first]
    assert engine.taken == ids(first)

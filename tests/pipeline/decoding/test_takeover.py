"""Two drivers decode the same shard: wherever one is paused or dies, the shard is answered once.

The decoding and its lease are the real ones; the engine is fake, and signs its answers.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Request
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.remaining_prompts import Work, list_work
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lease import Writer
from tests.pipeline.here import decode_here
from tests.pipeline.storage.all_orders import Memory, Witness, short_waits
from tests.pipeline.storage.explorer import Choice, Explorer, Thread, World, looks_second, named


class Signing(FakeEngine):
    """A fake engine whose answers name it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        for answer in super().answers(requests):
            signed = (replace(completion, text=self._name) for completion in answer.completions)
            yield replace(answer, completions=tuple(signed))


class FirstFirst(Explorer):
    """The first driver begins: where the second does, all is the same with their names changed."""

    def _choices(self, threads: list[Thread], path: Sequence[Choice]) -> Iterator[Choice]:
        return (choice for choice in super()._choices(threads, path) if path or choice.writer == 0)


@pytest.fixture(autouse=True, params=["look first", "look second"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a writer looks at its lease before or after it publishes: both are one call."""
    if request.param == "look second":
        monkeypatch.setattr(Artifact, "_change_under_lease", looks_second)


@pytest.fixture
def item(finished: Plan, monkeypatch: pytest.MonkeyPatch) -> Work:
    """A shard of eight prompts; one look without a change is enough to take a lease over."""
    short_waits(monkeypatch)
    for branch in finished.branches:
        branch.answers.drop("manifest.json")
        for shard in branch.answers.shards("generations"):
            branch.answers.drop(f"generations/{shard}.parquet")
    item = next(work_item for work_item in list_work(finished) if work_item.table == "generations")
    rows = remaining_prompts.read_prompts(item)
    monkeypatch.setattr(
        remaining_prompts, "read_prompts", lambda _: rows
    )  # read once for all orders
    return item


def driven(item: Work, reads: object, store: Memory, number: int) -> None:
    """What a driver and its engine do."""
    writer = Writer(store, named(number))
    writer.beat()
    free = Artifact(store, item.artifact.recipe)
    lease_ = writer.take(free.folder, wait=True, or_published=True, clock=store)
    if lease_ is None:  # the other has published all of it
        writer.end()
        return
    ours = replace(item, artifact=replace(free, lease=lease_), rows_per_chunk=7)
    ours.artifact.begin()
    decode_here(ours, Signing(f"engine {number}"), reads, lambda _: False)
    ours.artifact.finish(["generations", "errors"])
    writer.end()


def explored(item: Work, plan: Plan, kills: int, switches: int) -> int:
    """Explore the orders; returns how many there were."""
    folder, program = item.artifact.folder, partial(driven, item, tokenizer(plan.weights))
    expected = remaining_prompts.read_prompts(item)["prompt_id"].to_list()

    def ended(world: World, outcomes: list[str | None]) -> None:
        assert set(outcomes) <= {"done", "told", "killed"}
        last = world.store(5)
        program(last, 5)
        artifact = Artifact(last, item.artifact.recipe)
        assert artifact.read("generations", item.shard)["prompt_id"].to_list() == expected
        assert json.loads(last.get(f"{folder}/manifest.json"))["tables"]["errors"] == {}
        assert "killed" in outcomes or artifact.list_published(item.chunks) == []

    return FirstFirst(program, 2, kills, switches, Witness(folder), ended).explore().n_runs


def test_decode_paused_at_any_step_of_a_takeover_is_answered_once(
    item: Work, finished: Plan
) -> None:
    assert explored(item, finished, kills=0, switches=1) > 20


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_decode_killed_at_any_step_is_finished_by_the_next(item: Work, finished: Plan) -> None:
    assert explored(item, finished, kills=1, switches=0) > 40


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.chaos
def test_decode_paused_at_any_two_steps_is_answered_once(item: Work, finished: Plan) -> None:
    assert explored(item, finished, kills=0, switches=2) > 1000

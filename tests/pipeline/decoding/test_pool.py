"""The pool: the order of shards, and the replacement of dead engines.

Ray is stood in for by calls that a test ends as it likes.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError

from factsweep.operators import engines
from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.errors import InputError, StoppedError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding import pool as module
from factsweep.pipeline.decoding.pool import Pool, Queue, n_engines, order_of_shards
from factsweep.pipeline.decoding.progress_counter import Tally
from factsweep.pipeline.decoding.remaining_prompts import Work, list_work
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.stages.plan import Plan, build_plan, build_requested_plan
from tests.pipeline.here import answered_here

ENGINES = 64
IN_FLIGHT = 2  # shards that an engine is handed at a time
PROMPTS_PER_S = 900.0


def ends(prompts: Sequence[int]) -> list[float]:
    """The end of each engine: the first with room gets the next shard."""
    end = [0.0] * ENGINES
    room = [(0.0, engine) for engine in range(ENGINES) for _ in range(IN_FLIGHT)]
    for n in prompts:
        free_s, engine = heapq.heappop(room)
        end[engine] = max(free_s, end[engine]) + n / PROMPTS_PER_S
        heapq.heappush(room, (end[engine], engine))
    return end


def handed_out(prompts: Sequence[int], n_relations: int) -> list[int]:
    relations = [str(i % n_relations) for i in range(len(prompts))]
    return [prompts[i] for i in order_of_shards(relations, prompts, ENGINES)]


@pytest.mark.parametrize(
    "prompts",
    [
        [16_384] * 400,
        [16_384] * 360 + [100] * 40,
        [(i * 7919) % 16_384 + 1 for i in range(400)],
        [244] * 34 * 4 + [16_384] * 264,
    ],
)
def test_engines_end_within_a_minute_of_each_other(prompts: list[int]) -> None:
    for n_relations in (1, 41):
        end_times = ends(handed_out(prompts, n_relations))
        assert max(end_times) - min(end_times) < 60


@pytest.mark.parametrize(
    ("cluster", "n_shards", "n"),
    [
        ("cluster=kuberay", 400, 64),
        ("cluster=kuberay", 10, 10),
        ("cluster=slurm", 1, 2),
        ("cluster.device=cuda", 400, 64),
        ("cluster.device=cpu", 400, 2),  # where each computes with every core
    ],
)
def test_engines_that_the_work_needs_are_asked_for_at_once(
    cluster: str, n_shards: int, n: int
) -> None:
    run = load([cluster, "model=llama3-8b", "model.replicas.min=2", "model.replicas.max=64"])
    assert n_engines(run, n_shards) == n


def test_relations_are_handed_out_in_turn_until_the_last_keep_all_engines_busy() -> None:
    relations = [name for name in "abcd" for _ in range(4)]
    n_left = [9, 7, 5, 3, 8, 8, 8, 8, 2, 4, 6, 1, 1, 1, 1, 1]  # 24, 32, 13 and 4
    order = "".join(relations[i] for i in order_of_shards(relations, n_left, engines=0))
    assert order == "bbbbaaaaccccdddd"
    by_one = order_of_shards(relations, n_left, engines=1)  # 3 × 9 are kept for the end
    assert [relations[i] for i in by_one[:4]] == ["b"] * 4
    assert [n_left[i] for i in by_one[4:]] == sorted(n_left[:4] + n_left[8:], reverse=True)
    with_many_engines = [n_left[i] for i in order_of_shards(relations, n_left, engines=64)]
    assert with_many_engines == sorted(n_left, reverse=True)
    assert order_of_shards([], [], engines=1) == []


class Call:
    """A future: of an engine that loads, of one at a shard, or of the prompts of a setting."""

    def __init__(self, caller: str, shard: Work | None = None) -> None:
        self.of, self.shard = caller, shard
        self.result: Any = None


class FakeRay:
    """Actors whose calls end when `ends` says so, or else in turn."""

    def __init__(self) -> None:
        self.exceptions = module.ray.exceptions
        self.calls: list[Call] = []
        self.killed: list[str] = []
        self.ended: list[str] = []
        self.renewed: list[str] = []
        self.n_cores = 4.0
        self.ends: Callable[[list[Call]], Call | None] = lambda calls: calls[0]

    def remote(self, **_: object) -> Callable[[type], Any]:
        return lambda _: SimpleNamespace(remote=self._actor)

    def _actor(self, _run: Run, _weights: object, _tally: object, place: str) -> Any:
        def call(shard: Work | None = None) -> Call:
            self.calls.append(Call(place, shard))
            return self.calls[-1]

        def renew(_run: Run, _weights: object, _tally: object, new_place: str) -> Call:
            self.renewed.append(f"{place} as {new_place}")
            return call()

        method = SimpleNamespace(remote=call)
        end = SimpleNamespace(remote=lambda: self.ended.append(place))
        return SimpleNamespace(
            __ray_ready__=method,
            __ray_terminate__=end,
            decode=method,
            renew=SimpleNamespace(remote=renew),
            place=place,
        )

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.n_cores}

    def wait(self, calls: list[Call], timeout: float) -> tuple[list[Call], list[Call]]:
        ended = self.ends(calls)
        return ([] if ended is None else [ended]), []

    def get(self, call: Any) -> Any:
        if isinstance(call, Call) and isinstance(call.result, RayError):
            raise call.result
        return call.result if isinstance(call, Call) else call

    def kill(self, actor: Any) -> None:
        self.killed.append(actor.place)

    def handed(self) -> list[tuple[str, Work]]:
        """Which engine was handed which shard, in this order."""
        return [(call.of, call.shard) for call in self.calls if call.shard is not None]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake_ray = FakeRay()
    monkeypatch.setattr(module, "ray", fake_ray)
    return fake_ray


@pytest.fixture
def written(small_settings: Callable[..., Run]) -> Plan:
    """Two settings with their prompts."""
    plan = build_plan(small_settings("sweep.prompts=[zero-shot,4-template]"))
    for step in plan.steps:
        if step.artifact.stage in ("facts", "prompts", "admitted"):
            step.run()
    return plan


class Bench:
    """A pool of engines, its queue and its tally; `ready` are the futures of prompts."""

    def __init__(
        self, plan: Plan, n: int, ready: Sequence[Call] = (), kept: list[Any] | None = None
    ) -> None:
        self.tally = Tally()
        methods = ("add", "add_note", "announce", "spent", "stop")
        handle = {name: SimpleNamespace(remote=getattr(self.tally, name)) for name in methods}
        tally = SimpleNamespace(**handle)
        self.queue = Queue(plan, tally, {}, ready)
        self.first = self.queue.first()
        self.pool = Pool(plan, tally, n, kept)

    def answer(self) -> list[str]:
        return list(self.pool.answer(self.queue, self.first))


def test_pool_hands_each_engine_two_shards_and_tells_when_an_artifact_is_done(
    written: Plan, fake: FakeRay
) -> None:
    bench, most = Bench(written, 3), list[int]()

    def ends(calls: list[Call]) -> Call:
        most.append(max(sum(call.of == rival.of for call in calls) for rival in calls))
        return calls[0]

    fake.ends = ends
    folders = bench.answer()
    assert max(most) == 2
    assert [shard for _, shard in fake.handed()] == bench.first
    assert sorted(folders) == sorted({shard.artifact.folder for shard in bench.first})
    assert fake.killed == []


def test_shards_of_one_artifact_are_handed_out_behind_each_other(
    written: Plan, fake: FakeRay
) -> None:
    folders = [shard.artifact.folder for shard in Bench(written, 1).first]
    outputs = [artifact.folder for artifact in written.outputs]
    assert [folder for folder, _ in groupby(folders)] == outputs
    assert len(outputs) > len(written.branches)


@pytest.mark.parametrize("death", [ActorDiedError(), OutOfMemoryError("95 % of memory")])
def test_pool_gives_the_shards_of_an_engine_that_died_to_others_and_fills_its_place(
    written: Plan, fake: FakeRay, death: RayError
) -> None:
    bench, lost, handed_before = Bench(written, 2), list[Work](), 0

    def ends(calls: list[Call]) -> Call:
        nonlocal handed_before
        own_calls = [call for call in calls if call.of == "engine 0" and call.shard is not None]
        if len(own_calls) == 2 and not lost:
            lost.extend(call.shard for call in own_calls if call.shard is not None)
            handed_before = len(fake.handed())
            own_calls[1].result = death
            return own_calls[1]
        return calls[0]

    fake.ends = ends
    bench.answer()
    assert fake.killed == ["engine 0"]
    assert [shard for _, shard in fake.handed()[handed_before:]][:2] == lost
    assert len(fake.handed()) == len(bench.first) + len(lost)
    loads = [call.of for call in fake.calls if call.shard is None]
    assert loads == ["engine 0", "engine 1", "engine 0"]


def test_pool_ends_engines_that_nothing_waits_for_though_they_still_load(
    written: Plan, fake: FakeRay
) -> None:
    bench, alive = Bench(written, 9), list[int]()

    def ends(calls: list[Call]) -> Call:
        alive.append(len({call.of for call in calls}))
        return next(call for call in calls if call.of == "engine 3")

    fake.ends = ends
    assert len(bench.answer()) > 1
    assert {place for place, _ in fake.handed()} == {"engine 3"}
    assert (alive[0], alive[-1]) == (9, 1)
    assert len(fake.killed) == 8
    assert fake.ended == ["engine 3"]


def test_pool_keeps_the_fewest_engines_for_the_shards_of_one_that_dies(
    small_settings: Callable[..., Run], written: Plan, fake: FakeRay
) -> None:
    two = small_settings("model.replicas.min=2", "model.replicas.max=3")
    bench = Bench(replace(written, run=replace(written.run, model=two.model)), 3)
    last_calls = list[Call]()

    def ends(calls: list[Call]) -> Call:
        """The second engine dies when all others have done their part."""
        other_calls = [call for call in calls if call.of != "engine 1" or call.shard is None]
        if other_calls or last_calls:
            return other_calls[0] if other_calls else calls[0]
        last_calls.extend(calls)
        calls[0].result = ActorDiedError()
        return calls[0]

    fake.ends = ends
    bench.answer()
    last = [place for place, _ in fake.handed()][-len(last_calls) :]
    assert "engine 1" not in last
    assert len(fake.ended) == 2


@pytest.fixture
def reloading(written: Plan, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Two settings whose engine can take other weights."""
    monkeypatch.setitem(engines.ENGINES, "fake", replace(engines.ENGINES["fake"], reloads=True))
    return written


@pytest.mark.parametrize(
    ("outcome", "ended", "killed"),
    [
        (None, [], []),
        ("tensor norm differs", ["engine 0"], []),
        (ActorDiedError(), [], ["engine 0"]),
    ],
)
def test_engines_of_the_run_before_take_the_weights_or_are_replaced(
    reloading: Plan, fake: FakeRay, outcome: Any, ended: list[str], killed: list[str]
) -> None:
    kept = list[Any]()
    Bench(reloading, 2, kept=kept).answer()
    assert ([engine.place for engine in kept], fake.ended) == (["engine 0", "engine 1"], [])
    fake.calls.clear()
    bench = Bench(reloading, 2, kept=kept)
    fake.calls[0].result = outcome
    bench.answer()
    assert fake.renewed == ["engine 0 as engine 0", "engine 1 as engine 1"]
    assert (fake.ended, fake.killed) == (ended, killed)
    assert len(kept) == 2
    notes = [f"engine 0 loads in a new process: {outcome}"] if isinstance(outcome, str) else []
    assert bench.tally.read()[1] == notes


def test_engines_are_not_kept_for_other_resources_or_where_no_core_is_left(
    reloading: Plan, fake: FakeRay
) -> None:
    kept = list[Any]()
    fake.n_cores = 2.0
    Bench(reloading, 2, kept=kept).answer()
    assert ([engine.place for engine in kept], fake.ended) == (["engine 0"], ["engine 1"])
    kept[0].options = kept[0].options | {"num_gpus": 2}
    Bench(reloading, 1, kept=kept)
    assert (fake.ended, fake.renewed, kept) == (["engine 1", "engine 0"], [], [])


def test_pool_passes_on_what_an_engine_says_of_a_shard(written: Plan, fake: FakeRay) -> None:
    bench = Bench(written, 2)

    def ends(calls: list[Call]) -> Call:
        for call in calls:
            call.result = InputError("no such file") if call.shard else None
        return calls[-1]

    fake.ends = ends
    with pytest.raises(InputError, match="no such file"):
        bench.answer()
    bench.pool.close()
    assert sorted(fake.killed) == ["engine 0", "engine 1"]


def test_pool_hands_out_no_shard_after_a_stop_and_says_what_was_spent(
    written: Plan, fake: FakeRay
) -> None:
    ready, is_stopped = [Call("first"), Call("second")], False

    def ends(calls: list[Call]) -> Call | None:
        nonlocal is_stopped
        if calls == ready[1:] and not is_stopped:
            return None
        if calls[0].shard is not None:
            bench.tally.stop()
            is_stopped = True
            calls[0].result = StoppedError("the next request might exceed max_cost")
        return calls[0]

    fake.ends = ends
    object.__setattr__(written.run, "max_cost", 2.0)
    bench = Bench(written, 1, ready)
    with pytest.raises(StoppedError, match="before max_cost=2 is exceeded"):
        bench.answer()
    folders_asked = {shard.prompts.folder for _, shard in fake.handed()}
    assert folders_asked == {written.branches[0].prompts.folder}
    assert len(fake.handed()) == 8 < len(bench.first)


def test_setting_is_handed_out_when_its_prompts_are_there(written: Plan, fake: FakeRay) -> None:
    ready = [Call("first"), Call("second")]

    def ends(calls: list[Call]) -> Call | None:
        """The prompts of the second setting come when nothing else is under way."""
        return None if calls == ready[1:] and not fake.calls else calls[0]

    fake.ends = ends
    bench = Bench(written, 1, ready)
    zero_shot, template = (branch.prompts.folder for branch in written.branches)
    assert {shard.prompts.folder for shard in bench.first} == {zero_shot}
    assert bench.queue.estimate_n_shards(bench.first) == 2 * len(bench.first)
    assert bench.tally.read()[0]["to_come"] == 1
    bench.answer()
    folders = [shard.prompts.folder for _, shard in fake.handed()]
    assert list(dict.fromkeys(folders)) == [zero_shot, template]
    counts = bench.tally.read()[0]
    assert (counts["to_come"], counts["all_shards"]) == (0, len(folders))


@pytest.mark.parametrize("budget", [None, "20%"])
def test_shard_that_lacks_nothing_is_handed_out_to_be_published_alone(
    small_settings: Callable[..., Run], fake: FakeRay, budget: str | None
) -> None:
    overrides = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")
    plan = build_requested_plan(
        small_settings(*overrides, *([f"budget={budget}"] if budget else []))
    )
    for step in plan.steps:
        if step.artifact.stage in ("facts", "prompts", "admitted", "chosen"):
            step.run()
    items = list_work(plan)
    for item in items:
        answered_here(item, FakeEngine(), tokenizer(plan.weights), lambda _: False)
    assert len(Bench(plan, 1).first) == (0 if budget else len(items))

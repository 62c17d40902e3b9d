"""decode: prompts are asked once, and answers are kept.

The engine is fake: these tests are about scheduling, and need no model.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Request, Thinking
from factsweep.operators.errors import ArtifactHeldError, InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding import decode, open_shard, remaining_prompts
from factsweep.pipeline.decoding.engine import TimedEngine
from factsweep.pipeline.decoding.open_shard import OpenShard, Report
from factsweep.pipeline.decoding.remaining_prompts import Work, list_work
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lease import Writer, this_process
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.here import answered_here, decode_here, make_here, opened, without

Settings = Callable[..., Run]


class Recording(FakeEngine):
    """A fake engine that records its requests, and dies before answer `dies_at`."""

    def __init__(self, dies_at: int | None = None) -> None:
        super().__init__()
        self.requests: list[Request] = []
        self._dies_at = dies_at

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        for request in requests:
            if len(self.requests) == self._dies_at:
                raise RuntimeError("the engine died")
            self.requests.append(request)
            yield from super().answers([request])

    def ids(self) -> list[str]:
        return [request.request_id for request in self.requests]


class Backwards(FakeEngine):
    """Answers in the reverse order of the requests."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        yield from reversed(list(super().answers(requests)))


def answer(plan: Plan, item: Work, engine: FakeEngine) -> None:
    decode_here(item, engine, tokenizer(plan.weights), lambda _: False)


def first(plan: Plan, table: str = "generations") -> Work:
    return next(item for item in list_work(plan) if item.table == table)


@pytest.mark.parametrize("table", ["generations", "samples"])
def test_decode_answers_in_another_order_give_the_same_shard(prepared: Plan, table: str) -> None:
    item = first(prepared, table)
    answer(prepared, item, FakeEngine())
    expected = item.artifact.read(table, item.shard)
    item.artifact.drop(f"{table}/{item.shard}.parquet")
    answer(prepared, item, Backwards())
    assert_frame_equal(item.artifact.read(table, item.shard), expected)


def test_decode_after_a_death_asks_only_for_what_is_missing(prepared: Plan) -> None:
    item, dying, next_one = first(prepared), Recording(dies_at=13), Recording()
    with pytest.raises(RuntimeError):
        answer(prepared, item, dying)
    answer(prepared, item, next_one)
    assert len(dying.ids()) == 13
    assert next_one.ids()[0] == dying.ids()[10]  # two chunks of five were kept
    assert len({*dying.ids(), *next_one.ids()}) == len(next_one.ids()) + 10


def test_decode_chunk_that_is_old_enough_is_published_before_it_is_full(
    prepared: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    time_s = iter(range(10**6))  # every look at the clock is a second later
    monkeypatch.setattr(open_shard.time, "monotonic", lambda: float(next(time_s)))
    item = replace(first(prepared), rows_per_chunk=1000, seconds_per_chunk=12)
    dying = Recording(dies_at=13)
    with pytest.raises(RuntimeError):
        answer(prepared, item, dying)
    n_rows = [item.artifact.footer(item.table, chunk, item.chunks).rows for chunk in chunks(item)]
    assert 1 <= len(n_rows) < 13
    assert sum(n_rows) > 8


def test_decode_answers_that_are_given_twice_are_in_the_shards_costs(prepared: Plan) -> None:
    item, reads = replace(first(prepared), rows_per_chunk=3), tokenizer(prepared.weights)
    decode_here(item, FakeEngine(), reads, lambda _: False, again=7)
    counts = item.artifact.footer(item.table, item.shard).counts
    assert counts["answers_given_twice"] == 7
    assert counts["answers"] == item.artifact.footer(item.table, item.shard).rows


def test_left_counts_no_file_that_a_killed_engine_was_writing(prepared: Plan) -> None:
    item = replace(first(prepared), rows_per_chunk=3)
    with pytest.raises(RuntimeError):
        answer(prepared, item, Recording(dies_at=8))
    n_left = remaining_prompts.count_left([item])
    assert n_left == [opened(item).n_left]
    assert 0 < n_left[0] < remaining_prompts.read_prompts(item).height
    folder = f"{item.artifact.folder}/{item.chunks}"
    Path(item.artifact.store.where(folder), ".3-ab.parquet.cd.parquet").write_bytes(b"half")
    assert remaining_prompts.count_left([item]) == n_left


def chunks(item: Work) -> list[str]:
    return item.artifact.list_published(item.chunks)


@pytest.mark.parametrize("table", ["generations", "samples"])
def test_decode_resumed_shard_equals_an_uninterrupted_one(prepared: Plan, table: str) -> None:
    item = replace(first(prepared, table), rows_per_chunk=1)
    answer(prepared, item, FakeEngine())
    expected = item.artifact.read(table, item.shard)
    item.artifact.store.drop(f"{item.artifact.folder}/{table}/{item.shard}.parquet")
    with pytest.raises(RuntimeError):
        answer(prepared, item, Recording(dies_at=2))
    answer(prepared, item, FakeEngine())
    assert_frame_equal(item.artifact.read(table, item.shard), expected)


def thinks(item: Work) -> Work:
    task = replace(item.question.task, thinking=Thinking(8))  # type: ignore[type-var]
    return replace(item, question=replace(item.question, task=task), rows_per_chunk=1)


@pytest.mark.parametrize("table", ["generations", "samples"])
def test_decode_resumed_shard_of_a_model_that_thinks_has_the_thought_of_every_answer(
    prepared: Plan, table: str
) -> None:
    item = thinks(first(prepared, table))
    answer(prepared, item, Backwards())
    expected = item.artifact.read("thoughts", item.shard)
    answers = item.artifact.read(table, item.shard)
    assert expected["prompt_id"].to_list() == answers["prompt_id"].to_list()
    n = item.question.task.answers_per_prompt
    assert set(expected["ended"].to_list()[0]) == {"itself"}
    assert expected["texts"].list.len().unique().to_list() == [n]
    for name in (table, "thoughts"):
        item.artifact.store.drop(f"{item.artifact.folder}/{name}/{item.shard}.parquet")
    with pytest.raises(RuntimeError):
        answer(prepared, item, Recording(dies_at=2))
    assert len(item.artifact.list_published(item.thoughts)) == 2
    answer(prepared, item, FakeEngine())
    assert_frame_equal(item.artifact.read("thoughts", item.shard), expected)
    assert item.artifact.list_published(item.thoughts) == []


def test_decode_thoughts_of_a_shard_that_another_has_published_stay_as_they_are(
    prepared: Plan,
) -> None:
    item = thinks(first(prepared))
    late = answered(prepared, item, lambda _: False)
    answer(prepared, item, FakeEngine())  # another: it publishes, and clears the chunks away
    expected = item.artifact.read("thoughts", item.shard)
    decode.publish(late)
    assert_frame_equal(item.artifact.read("thoughts", item.shard), expected)
    assert expected["texts"].null_count() == 0


def test_answered_shard_whose_engine_died_before_it_was_published_is_asked_of_none(
    prepared: Plan,
) -> None:
    item, idle = first(prepared), Recording()
    answered(prepared, item, lambda _: False)
    assert item.artifact.shards("generations") == []
    assert remaining_prompts.count_left([item]) == [0]
    assert open_shard.read_trial(item) == open_shard.Trial()  # it killed no engine
    answer(prepared, item, idle)
    assert idle.ids() == []
    assert item.artifact.shards("generations") == [item.shard]
    assert item.open_name not in [work_item.open_name for work_item in list_work(prepared)]


def test_answered_shard_that_was_taken_over_is_published_by_the_taker_alone(prepared: Plan) -> None:
    free, reported = first(prepared), list[dict[str, float]]()
    first_writer, other = (
        Writer(prepared.store, this_process()),
        Writer(prepared.store, this_process()),
    )
    first_writer.beat()
    own_work = leased(free, first_writer)
    late = answered(prepared, own_work, lambda counts: bool(reported.append(counts)))
    first_writer.end()  # as if it had been paused for long
    theirs, idle = leased(free, other), Recording()
    with pytest.raises(ArtifactHeldError):
        decode.publish(late)
    assert free.artifact.shards("generations") == []
    assert not any(counts.get("shards") for counts in reported)
    answer(prepared, theirs, idle)
    assert idle.ids() == []
    assert free.artifact.shards("generations") == [free.shard]


def answered(plan: Plan, item: Work, report: Report) -> OpenShard:
    """Answer a shard and publish nothing."""
    return answered_here(item, FakeEngine(), tokenizer(plan.weights), report)


def leased(item: Work, writer: Writer) -> Work:
    lease = writer.take(item.artifact.folder, wait=False)
    return replace(item, artifact=replace(item.artifact, lease=lease))


class Far:
    """Ticks once for each call of a store, and once for all calls that are made at once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ticks = 0
        for name in ("put", "put_new", "get", "exists", "names", "drop"):
            patch.setattr(Store, name, self._far(getattr(Store, name)))
        patch.setattr(Store, "each", lambda _, ask, items: self._each(ask, items))

    def _far(self, call: Callable[..., object]) -> Callable[..., object]:
        def far(*arguments: object) -> object:
            self.ticks += 1
            return call(*arguments)

        return far

    def _each(self, ask: Callable[[object], object], items: Iterable[object]) -> list[object]:
        began, results, ends = self.ticks, list[object](), [self.ticks]
        for item in items:
            self.ticks = began
            results.append(ask(item))
            ends.append(self.ticks)
        self.ticks = max(ends)
        return results


def test_engine_waits_for_few_calls_of_a_far_store_between_two_shards(
    prepared: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(prepared.store, this_process())
    writer.beat()
    first, other = [
        work_item for work_item in list_work(prepared) if work_item.table == "generations"
    ][:2]
    own_work = leased(first, writer)
    shards = [opened(item) for item in (own_work, replace(other, artifact=own_work.artifact))]
    far, ticks_at_request = Far(monkeypatch), list[int]()
    engine = TimedEngine(FakeEngine(witness=lambda _: ticks_at_request.append(far.ticks)))
    for shard in shards:
        shard.begin(engine, lambda _: False)
        list(decode.answer(shard, engine, tokenizer(prepared.weights)))
    n_of_one = shards[0].rows.height
    assert len(ticks_at_request) == n_of_one + shards[1].rows.height
    ticks = ticks_at_request[n_of_one] - ticks_at_request[n_of_one - 1]
    # A call takes 0.03 s; a shard has 16,384 prompts, and 900 are answered per second.
    assert 0 < ticks * 0.03 < 0.01 * 16_384 / 900


def test_decode_published_shard_is_asked_of_no_engine(prepared: Plan) -> None:
    item, idle = first(prepared), Recording()
    answer(prepared, item, FakeEngine())
    answer(prepared, item, idle)
    assert idle.ids() == []
    assert opened(item).n_left == 0


def test_decode_shard_that_another_engine_publishes_meanwhile_is_kept(prepared: Plan) -> None:
    item = first(prepared)
    path = f"{item.artifact.folder}/generations/{item.shard}.parquet"
    published = list[bytes]()

    def overtaken(_: dict[str, float]) -> bool:
        if not published:
            published.append(b"")
            answer(prepared, item, FakeEngine())
            published.append(item.artifact.store.get(path))
        return False

    decode_here(item, FakeEngine(), tokenizer(prepared.weights), overtaken)
    assert item.artifact.store.get(path) == published[1]
    assert item.artifact.shards(item.chunks) == []


def test_shard_whose_chunks_another_engine_clears_away_meanwhile_is_published(
    prepared: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    item, published = first(prepared), Artifact.list_published

    def late(artifact: Artifact, table: str) -> list[str]:
        if table == item.chunks:
            monkeypatch.undo()
            answer(prepared, item, FakeEngine())  # another: it publishes, and clears them away
            return ["5-gone"]
        return published(artifact, table)

    monkeypatch.setattr(Artifact, "list_published", late)
    assert opened(item).is_published


class Cut(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("table", ["errors", "chunks", "trials"])
def test_decode_death_after_publishing_is_settled_by_the_next_engine(
    prepared: Plan, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = replace(first(prepared), max_deaths=1, max_failed_share=1.0)
    ids_left, shard = remaining_prompts.read_prompts(item)["prompt_id"].to_list(), item.open_name
    open_shard.write_trial(item, open_shard.Trial(condemned=(ids_left[0],)))
    with monkeypatch.context() as patch:
        for name in ("put_new", "drop"):
            patch.setattr(Store, name, dying_at(f"/{table}/", getattr(Store, name)))
        with pytest.raises(Cut):
            answer(prepared, item, FakeEngine())
    assert shard in [work_item.open_name for work_item in list_work(prepared)]
    idle = Recording()
    answer(prepared, item, idle)
    assert idle.ids() == []
    assert item.artifact.read("errors", item.shard)["prompt_id"].to_list() == [ids_left[0]]
    assert shard not in [work_item.open_name for work_item in list_work(prepared)]


def test_trial_of_a_shard_that_is_not_published_is_forgotten_by_the_next_run(
    prepared: Plan,
) -> None:
    published, opened = [
        work_item for work_item in list_work(prepared) if work_item.table == "generations"
    ][:2]
    answer(prepared, published, FakeEngine())
    for item in (published, opened):
        condemned = open_shard.Trial(begun=2, condemned=(item.shard,))
        open_shard.write_trial(item, condemned)
    open_shard.forget_trials(published.artifact)
    assert remaining_prompts.find_trials(published.artifact, "generations") == {published.shard}
    assert open_shard.read_trial(opened) == open_shard.Trial()


def dying_at(folder: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def dying(store: Store, name: str, *args: object) -> Any:
        if folder in name:
            raise Cut
        return call(store, name, *args)

    return dying


class Overflowing(FakeEngine):
    """Its log-probabilities are no numbers from the fourth on."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        for number, answer in enumerate(super().answers(requests)):
            wrong = [replace(completion, logprob=float("nan")) for completion in answer.completions]
            yield replace(answer, completions=tuple(wrong)) if number >= 3 else answer


def test_decode_answer_that_is_no_number_ends_the_run_and_is_not_kept(prepared: Plan) -> None:
    item = first(prepared, "canary")
    with pytest.raises(InputError, match=naming("prompt P", "NaN", "model.dtype", "float32")):
        answer(prepared, item, Overflowing())
    (chunk,) = item.artifact.list_published(item.chunks)
    assert item.artifact.read_chunk("canary", item.chunks, chunk)[0]["logprob"].is_not_nan().all()
    engine = Recording()
    answer(prepared, item, engine)
    assert len(engine.ids()) == remaining_prompts.read_prompts(item).height - 3


@pytest.mark.parametrize("value", [{"a": [0.5, float("nan")]}, [{"b": float("nan")}]])
def test_numbers_deep_in_an_answer_are_looked_at(value: object) -> None:
    assert not decode._has_no_nan(value)
    assert decode._has_no_nan({"a": [0.5, None, "nan", -float("inf")]})


@pytest.fixture(scope="module")
def recorded(small: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Recording]:
    """A fully answered run, and its engine."""
    folder, engine = tmp_path_factory.mktemp("recorded"), Recording()
    plan = build_plan(load([*small, f"artifacts={folder}"]))
    make_here(without(plan, "matched", "metrics"), engine)
    return plan, engine


def test_decode_identical_prompts_are_asked_once(recorded: tuple[Plan, Recording]) -> None:
    plan, engine = recorded
    rows = plan.branches[0].prompts.read_all("prompts")
    greedy = [r for r in engine.requests if r.seed is None and not r.sampling.logprobs]
    distinct_prompts = rows.filter(pl.col("same_as").is_null())
    assert sorted(request.request_id for request in greedy) == sorted(distinct_prompts["prompt_id"])
    texts = [tuple(request.token_ids) for request in greedy]
    assert len(set(texts)) == len(texts) < rows.height


def test_decode_logprobs_are_asked_of_the_canary_alone(recorded: tuple[Plan, Recording]) -> None:
    plan, engine = recorded
    (branch,) = plan.branches
    ids_asked = {r.request_id for r in engine.requests if r.sampling.logprobs}
    ranked = branch.prompts.read_all("ranked")
    assert ids_asked == set(ranked.filter(pl.col("same_as").is_null())["prompt_id"])
    assert branch.answers.read_all("generations")["logprob"].is_null().all()
    assert branch.repeated_answers is not None
    canary = branch.repeated_answers.read_all("canary")
    assert set(canary["prompt_id"]) == ids_asked
    assert canary["logprob"].is_not_null().all()


def test_decode_samples_are_of_the_lowest_ranks(done: Plan) -> None:
    (branch,) = done.branches
    ranked = branch.prompts.read_all("ranked").filter(pl.col("calibration_rank") < 8)
    for block in branch.extra_outputs:
        assert set(block.read_all("samples")["prompt_id"]) == set(ranked["prompt_id"])
        assert set(block.read_all("samples")["texts"].list.len()) == {25}


def test_decode_each_block_has_a_seed_of_its_own(recorded: tuple[Plan, Recording]) -> None:
    _, engine = recorded
    seeds = [request.seed for request in engine.requests if request.seed is not None]
    assert len(set(seeds)) == len(seeds) == 8 * 4
    assert all(0 <= seed < 2**62 for seed in seeds)


def test_recipe_sampling_changed_keeps_the_greedy_answers(
    small_settings: Settings, done: Plan, subtests: pytest.Subtests
) -> None:
    (branch,) = done.branches
    for change in ("temperature=0.7", "top_p=0.9", "n_prompts=9"):
        with subtests.test(change):
            (other,) = build_plan(small_settings(f"decoding.samples.{change}")).branches
            assert other.answers.fingerprint == branch.answers.fingerprint
            samples = [
                {block.fingerprint for block in some_branch.extra_outputs}
                for some_branch in (branch, other)
            ]
            assert samples[0].isdisjoint(samples[1])

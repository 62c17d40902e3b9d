"""An engine of the pool in this process: it answers while it publishes.

Ray is stood in for by plain calls; the engine is fake, and the shards are published for real.
"""

import faulthandler
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from ray.exceptions import OutOfMemoryError, RayTaskError

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Request
from factsweep.operators.errors import (
    ArtifactHeldError,
    DamagedFileError,
    DecodingError,
    FactsweepError,
    InputError,
)
from factsweep.operators.schemas import empty
from factsweep.pipeline.decoding import decoder, open_shard, remaining_prompts, root_cause
from factsweep.pipeline.decoding.decoder import Decoder, Watchdog
from factsweep.pipeline.decoding.progress_counter import Tally
from factsweep.pipeline.decoding.remaining_prompts import Work, list_work
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.artifact import Artifact

WITHIN_S = 240.0


class Handle:
    """An object of this process, as Ray hands out an actor."""

    def __init__(self, actor: object) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self._actor, name))


class Ended(BaseException):
    """The process ended here."""


class Bench:
    """An engine of the pool with two shards; the first is published when the gate is opened."""

    def __init__(self, plan: Plan, patch: pytest.MonkeyPatch) -> None:
        self.items = [item for item in list_work(plan) if item.table == "generations"][:2]
        self.asked: list[tuple[str, str]] = []  # the ids, and the threads that asked
        self.gate = threading.Event()
        self.tally = Tally()
        self.ended: list[tuple[int, list[str]]] = []
        engine = FakeEngine(
            witness=lambda prompt_id: self.asked.append(
                (prompt_id, threading.current_thread().name)
            )
        )
        context = SimpleNamespace(get_node_id=lambda: "node")
        patch.setattr(decoder.ray, "get_runtime_context", lambda: context)
        patch.setattr(decoder.ray, "get", lambda value: value)
        patch.setattr(decoder.signal, "signal", lambda *_: None)
        patch.setattr(decoder.os, "_exit", self._end)
        patch.setattr(decoder.gc, "freeze", lambda: None)  # the garbage of other tests
        self.loads: list[str] = []  # the threads that loaded
        patch.setattr(decoder.engine, "load", lambda *_: self._load(engine))
        patch.setattr(Artifact, "publish", self._gated(Artifact.publish))
        self.decoder = Decoder(plan.run, plan.weights, Handle(self.tally), "engine")
        self._calls = ThreadPoolExecutor(3)

    def _load(self, engine: FakeEngine) -> FakeEngine:
        self.loads.append(threading.current_thread().name)
        return engine

    def _gated(self, write: Callable[..., pl.DataFrame]) -> Callable[..., pl.DataFrame]:
        def gated(
            artifact: Artifact, table: str, shard: str, *frames: pl.DataFrame
        ) -> pl.DataFrame:
            if shard == self.items[0].shard:
                assert self.gate.wait(WITHIN_S)
            return write(artifact, table, shard, *frames)

        return gated

    def _end(self, code: int) -> None:
        self.ended.append((code, self.published()))
        raise Ended

    def published(self) -> list[str]:
        return self.items[0].artifact.list_published("generations")

    def call(self, item: Work) -> "Future[FactsweepError | None]":
        return self._calls.submit(self.decoder.decode, item)

    def call_all(self, *items: Work) -> "list[FactsweepError | None]":
        """Have all wait for the engine, in this order; what came of them."""
        idle = threading.Event()
        self.decoder._answering.submit(idle.wait, WITHIN_S)
        calls, end = list[Future[FactsweepError | None]](), time.monotonic() + WITHIN_S
        for item in items:
            calls.append(self.call(item))
            while len(self.decoder._turns) < len(calls):
                assert time.monotonic() < end
                time.sleep(0.01)
        idle.set()
        self.gate.set()
        return [call.result(WITHIN_S) for call in calls]

    def answered(self, *items: Work) -> None:
        """Wait until the engine was asked all prompts of these shards, and all are kept."""
        expected = [
            prompt_id
            for item in items
            for prompt_id in remaining_prompts.read_prompts(item)["prompt_id"]
        ]
        end = time.monotonic() + WITHIN_S
        while [prompt_id for prompt_id, _ in self.asked] != expected or sum(
            remaining_prompts.count_left(items)
        ):
            assert time.monotonic() < end
            time.sleep(0.01)

    def outcome_after_the_first(self, item: Work) -> FactsweepError | None:
        """The outcome of a shard, which comes after the first one is published."""
        call = self.call(item)
        with pytest.raises(TimeoutError):
            call.result(0.3)
        self.gate.set()
        return call.result(WITHIN_S)

    def close(self) -> None:
        self.gate.set()
        self._calls.shutdown()


@pytest.fixture
def bench(prepared: Plan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    new_bench = Bench(prepared, monkeypatch)
    yield new_bench
    new_bench.close()


def test_shard_is_published_behind_the_answering_of_the_next(bench: Bench) -> None:
    first, other = bench.items
    calls = [bench.call(first)]
    bench.answered(first)
    calls.append(bench.call(other))
    bench.answered(first, other)
    assert not any(call.done() for call in calls)  # one at a time is published
    assert bench.published() == []
    assert bench.tally.read()[0].get("shards", 0) == 0
    bench.gate.set()
    assert [call.result(WITHIN_S) for call in calls] == [None, None]
    assert bench.published() == sorted(item.shard for item in bench.items)
    assert bench.tally.read()[0]["shards"] == 2
    assert {thread for _, thread in bench.asked} == {*bench.loads}  # vLLM's engine belongs to it


def innocent(first: Work, other: Work) -> Work:
    return other


def of_another_artifact(first: Work, other: Work) -> Work:
    return replace(other, artifact=replace(other.artifact, name="0" * 16))


def that_killed(first: Work, other: Work) -> Work:
    open_shard.write_trial(other, open_shard.Trial(begun=1))
    return other


def behind_one_that_killed(first: Work, other: Work) -> Work:
    that_killed(other, first)
    return other


def all_answered(first: Work, other: Work) -> Work:
    other.artifact.write("generations", other.shard, empty("generations"))
    return other


@pytest.mark.parametrize(
    ("change", "n_calls"),
    [
        (innocent, 1),
        (of_another_artifact, 2),
        (that_killed, 2),
        (behind_one_that_killed, 2),
        (all_answered, 1),
    ],
)
def test_shard_follows_the_one_before_where_nothing_speaks_against_it(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Work, Work], Work],
    n_calls: int,
) -> None:
    first, other = bench.items[0], change(*bench.items)
    answers, n_asked = FakeEngine.answers, list[int]()

    def noted(engine: FakeEngine, requests: Iterable[Request]) -> Iterator[Answer]:
        n_asked.append(len(bench.asked))
        yield from answers(engine, requests)

    monkeypatch.setattr(FakeEngine, "answers", noted)
    assert bench.call_all(first, other) == [None, None]
    assert len(n_asked) == n_calls
    assert bench.tally.read()[0]["shards"] == 2


def test_shards_of_one_artifact_are_answered_together_if_another_waits_between_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = list[str]()
    monkeypatch.setattr(bench.tally, "set_task", lambda _, task: tasks.append(task))
    first, second = bench.items
    between = of_another_artifact(first, second)
    assert bench.call_all(first, between, second) == [None, None, None]
    assert list(dict.fromkeys(tasks)) == [first.name, second.name, between.name]


def test_first_engine_shows_its_first_prompt_and_what_is_odd_about_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = type(bench.items[0].question.task)
    monkeypatch.setattr(task, "warnings", lambda *_: ["it has no mark."])
    assert bench.call_all(*bench.items) == [None, None]
    warning, prompt = bench.tally.read()[1]
    assert warning == "warning: it has no mark."
    assert prompt.startswith("first prompt, ")


def test_engine_is_said_to_be_at_the_next_shard_when_it_has_answered_the_one_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = list[tuple[str, int]]()
    monkeypatch.setattr(
        bench.tally, "set_task", lambda _, task: tasks.append((task, len(bench.asked)))
    )
    bench.call_all(*bench.items)
    first, other = (item.name for item in bench.items)
    assert [task for task, _ in tasks] == [first, first, other]
    n_prompts = remaining_prompts.read_prompts(bench.items[0]).height
    assert (tasks[0][1], tasks[-1][1]) == (0, n_prompts)


def test_engine_that_says_what_it_was_not_asked_is_told_of_without_a_death(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = FakeEngine.answers

    def twice(engine: FakeEngine, requests: Iterable[Request]) -> Iterator[Answer]:
        for answer in answers(engine, requests):
            yield from (answer, answer)

    monkeypatch.setattr(FakeEngine, "answers", twice)
    bench.gate.set()
    error = bench.call(bench.items[0]).result(WITHIN_S)
    assert isinstance(error, DecodingError)
    assert "died" not in str(error)


def test_shard_that_cannot_be_opened_is_told_in_its_turn(bench: Bench) -> None:
    first, other = bench.items
    other.artifact.put(f"trials/{other.open_name}.json", b"half")
    bench.call(first)
    bench.answered(first)
    error = bench.outcome_after_the_first(other)
    assert isinstance(error, DamagedFileError)


def test_engine_is_loaded_before_it_is_handed_a_shard(
    bench: Bench, prepared: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(bench.loads) == 1

    def fails(*_: object) -> None:
        raise InputError("model.id=none: there is no such folder; correct it.")

    monkeypatch.setattr(decoder.engine, "load", fails)
    late = Decoder(prepared.run, prepared.weights, Handle(Tally()), "engine")
    bench.gate.set()
    error = late.decode(bench.items[0])  # returns the error of loading
    assert isinstance(error, InputError)


def test_hopeless_engine_tells_of_each_shard_and_lives_until_it_is_told(
    bench: Bench, prepared: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(decoder.engine, "load", fails)
    tally = Tally(one_machine=True)
    tally.register_engine("engine", "node", "first.log")
    tally.note_death("engine", "RuntimeError: no kernel image")
    second = Decoder(prepared.run, prepared.weights, Handle(tally), "engine")
    for item in bench.items:
        error = second.decode(item)
        assert isinstance(error, DecodingError)
        assert "2 engines in a row died" in str(error)
    assert bench.ended == []


def test_process_that_leaves_publishes_what_is_answered_first(bench: Bench) -> None:
    first, other = bench.items
    bench.call(first)
    bench.answered(first)
    bench.decoder._stop(15, None)
    leaving = bench.call(other)
    time.sleep(0.2)
    assert bench.ended == []
    bench.gate.set()
    with pytest.raises(Ended):
        leaving.result(WITHIN_S)
    assert bench.ended == [(0, [first.shard])]
    assert {prompt_id for prompt_id, _ in bench.asked} == set(
        remaining_prompts.read_prompts(first)["prompt_id"]
    )


def test_shard_that_cannot_be_published_is_told_by_its_own_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(artifact: Artifact, *_: object) -> None:
        raise ArtifactHeldError("was taken over")

    monkeypatch.setattr(Artifact, "publish", taken)
    error = bench.call(bench.items[0]).result(WITHIN_S)
    assert isinstance(error, ArtifactHeldError)
    assert bench.tally.read()[0].get("shards", 0) == 0


def test_engine_that_dies_ends_when_what_it_answered_before_is_published(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = bench.items
    bench.call(first)
    bench.answered(first)

    def dies(*_: object) -> None:
        raise RuntimeError("the engine died")

    monkeypatch.setattr(FakeEngine, "answers", dies)
    dying = bench.call(other)
    time.sleep(0.2)
    assert bench.ended == []
    bench.gate.set()
    with pytest.raises(Ended):
        dying.result(WITHIN_S)
    assert bench.ended == [(1, [first.shard])]


def test_error_of_a_shard_is_told_when_the_one_before_it_is_published(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = bench.items
    bench.call(first)
    bench.answered(first)

    def fails(*_: object) -> None:
        raise InputError("the server answers nothing")

    monkeypatch.setattr(FakeEngine, "answers", fails)
    error = bench.outcome_after_the_first(other)
    assert isinstance(error, InputError)
    assert bench.published() == [first.shard]


HANGS = """
import sys
from factsweep.pipeline.decoding.decoder import Watchdog

def answer():
    while True:
        pass

def hang_in_c():
    sys.setswitchinterval(60)  # no other thread of Python's gets a turn
    answer()

with Watchdog().on_guard(0.3):
    hang_in_c()
"""


def test_process_that_hangs_is_ended_and_says_where_it_stood() -> None:
    command = [sys.executable, "-c", HANGS]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert process.returncode == 1
    assert "Timeout (0:00:00.300000)!" in process.stderr
    assert "in answer" in process.stderr


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The timers that are set to end the process, each in place of the one before; null: none."""
    timers_set: list[float | None] = []

    def later(seconds: float, *, exit: bool) -> None:  # noqa: A002
        assert exit
        timers_set.append(seconds)

    monkeypatch.setattr(faulthandler, "dump_traceback_later", later)
    monkeypatch.setattr(
        faulthandler, "cancel_dump_traceback_later", lambda: timers_set.append(None)
    )
    return timers_set


def test_beat_sets_the_timer_anew_on_guard_alone(timers: list[float | None]) -> None:
    watchdog = Watchdog()
    watchdog.beat()
    assert timers == []
    with watchdog.on_guard(2):
        watchdog.beat()
        assert timers == [2, 2]
    watchdog.beat()
    assert timers[2:] == [None]


def test_guard_within_a_guard_leaves_the_timer_of_the_outer_one(timers: list[float | None]) -> None:
    watchdog = Watchdog()
    with watchdog.on_guard(2):
        with watchdog.on_guard(5):
            assert timers[-1] == 5
        assert timers[-1] == 2
        with watchdog.on_guard(1):
            assert timers[-1] == 2  # as long as the longest
    assert timers[-1] is None
    with pytest.raises(RuntimeError), watchdog.on_guard(2):
        raise RuntimeError
    assert timers[-1] is None


CORE = """
(EngineCore_DP0 pid=7) ERROR 11-22 09:20:11 [core.py:708] EngineCore failed to start.
(EngineCore_DP0 pid=7) ERROR 11-22 09:20:11 [core.py:708] Traceback (most recent call last):
(EngineCore_DP0 pid=7) ERROR 11-22 09:20:11 [core.py:708]   File "core.py", line 1, in run
(EngineCore_DP0 pid=7) ERROR 11-22 09:20:11 [core.py:708] ValueError: To serve 4096 needs 9 GiB.
"""
PARENT = """
Traceback (most recent call last):
  File "utils.py", line 1, in wait
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
RAISED = "RuntimeError: Unsupported CPU attention configuration: head_dim=16\n"
WATCHDOG = 'Timeout (0:00:02)!\nThread 0x01 (most recent call first):\n  File "a.py", line 1 in f\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.err"


@pytest.mark.parametrize(
    ("written", "cause_expected"),
    [
        (PARENT + RAISED, RAISED.strip()),
        (CORE + PARENT, "ValueError: To serve 4096 needs 9 GiB."),
        ("torch.OutOfMemoryError: CUDA out of memory.\nbye\n", "torch.OutOfMemoryError: CUDA out "),
        ("Fatal Python error: Segmentation fault\n\nThread 1:\n", "Fatal Python error: Segment"),
        (WATCHDOG, "Timeout (0:00:02)!"),
        ("one\n\ntwo\nthree\nfour\n", "two / three / four"),
        ("", root_cause.SILENT),
    ],
)
def test_cause_log_names_the_last_error_that_says_something(
    written: str, cause_expected: str, log: Path
) -> None:
    if written:
        log.write_text(written)
    assert root_cause.find_cause_in_log(log).startswith(cause_expected)


def test_cause_error_in_the_output_is_found_where_the_errors_only_point_to_it(log: Path) -> None:
    log.write_text(PARENT)
    log.with_suffix(".out").write_text(CORE)
    pointing = RuntimeError("Engine core initialization failed. See root cause above.")
    assert root_cause.find_cause(pointing, log) == "ValueError: To serve 4096 needs 9 GiB."


def test_cause_error_that_says_something_is_itself(log: Path) -> None:
    log.write_text(CORE)
    assert root_cause.find_cause(ValueError("two\n lines"), log) == "ValueError: two lines"


def test_with_log_has_the_last_lines_of_a_log_that_is_here(log: Path) -> None:
    assert not hasattr(root_cause.add_log_lines(DecodingError("died"), log), "__notes__")
    log.write_text("".join(f"line {i}\n\n" for i in range(100)))
    notes = root_cause.add_log_lines(DecodingError("died"), log).__notes__
    assert notes == [f"its log: line {i}" for i in range(92, 100)]


def test_cause_has_no_secret(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecretindeed")
    log.write_text("OSError: hf_verysecretindeed is refused\n")
    assert "verysecret" not in root_cause.find_cause_in_log(log)


def test_cause_of_a_task_is_an_error_of_ours_of_ray_or_the_tasks_own() -> None:
    def of_task(error: Exception) -> BaseException:
        return root_cause.find_task_error(RayTaskError("decode_all", "traceback", error))

    refusal = InputError("no such model")
    assert of_task(refusal) is refusal
    assert isinstance(of_task(OutOfMemoryError("95 % of memory")), DecodingError)
    assert "95 % of memory" in str(of_task(OutOfMemoryError("95 % of memory")))
    assert isinstance(of_task(TypeError("a fault of our own")), RayTaskError)


@pytest.mark.parametrize("fault", [None, "its tensors differ", "an error"])
def test_engine_that_takes_other_weights_in_place_serves_the_next_run(
    prepared: Plan, monkeypatch: pytest.MonkeyPatch, fault: str | None
) -> None:
    bench, tally, threads = Bench(prepared, monkeypatch), Tally(), list[str]()
    bench.gate.set()
    assert bench.call(bench.items[0]).result(WITHIN_S) is None

    def reload(loaded: object, old: object, run: object, weights: object) -> str | None:
        threads.append(threading.current_thread().name)
        assert (loaded, old) == (bench.decoder._engine, prepared.weights)
        if fault == "an error":
            raise RuntimeError("no memory")
        return fault

    monkeypatch.setattr(decoder.engine, "reload", reload)
    monkeypatch.setattr(decoder, "hidden_traceback", lambda: "")
    weights = replace(prepared.weights)
    reason = bench.decoder.renew(prepared.run, weights, Handle(tally), "engine 1")
    assert threads == bench.loads, "an engine stays in its thread"
    counts, notes = tally.read()
    if fault is not None:
        assert ("failed" if fault == "an error" else fault) in str(reason)
        assert ("started" in counts, notes) == (False, [])
        return
    assert reason is None
    assert counts["started"] == 1
    assert all(word in notes[0] for word in ("engine 1", "in place in", "its start had taken"))
    assert bench.call(bench.items[1]).result(WITHIN_S) is None
    assert tally.read()[0]["prompts"] > 0
    bench.decoder._stop(0, None)
    assert "about to end" in str(bench.decoder.renew(prepared.run, weights, Handle(tally), "x"))

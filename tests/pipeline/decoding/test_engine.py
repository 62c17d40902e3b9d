"""How engines that share a GPU are loaded."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Request
from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import engine
from factsweep.pipeline.decoding import engine as module
from factsweep.pipeline.decoding.engine import TimedEngine, build_prompter, hold_gpus
from factsweep.pipeline.stages.plan import build_plan
from tests.messages import naming


def test_engines_that_share_a_gpu_load_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    loading, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        with hold_gpus(["0"]):
            loading.set()
            may_end.wait(60)
            order.append("first")

    def second(gpus: list[str], name: str) -> None:
        with hold_gpus(gpus):
            order.append(name)

    first_thread = threading.Thread(target=first)
    first_thread.start()
    assert loading.wait(60)
    for elsewhere in (["1"], []):
        second(elsewhere, "elsewhere")  # does not wait
    waiting = threading.Thread(target=second, args=(["0"], "second"))
    waiting.start()
    may_end.set()
    for thread in (first_thread, waiting):
        thread.join(60)
    assert order == ["elsewhere", "elsewhere", "first", "second"]


def test_a_link_in_place_of_the_lock_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with hold_gpus(["0"]):
        (lock,) = tmp_path.iterdir()
    lock.unlink()
    lock.symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match=lock.name), hold_gpus(["0"]):
        pass
    assert not (tmp_path / "target").exists()


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Engine:
    """Takes two requests at a time, and two seconds for each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def answers(self, requests: Iterator[str]) -> Iterator[str]:
        waiting, running = iter(requests), list[str]()
        while True:
            while len(running) < 2 and (request := next(waiting, None)) is not None:
                running.append(request)
            if not running:
                return
            self._clock.now += 2
            yield running.pop(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    new_clock = Clock()
    monkeypatch.setattr(module, "time", new_clock)
    return new_clock


def test_idle_is_what_passes_while_nothing_is_asked(clock: Clock) -> None:
    engine = TimedEngine(Engine(clock))
    clock.now += 5  # the first shard is read
    for _ in engine.answers("abc"):
        clock.now += 1  # behind the last answer alone the engine has nothing to do
    assert engine.take_usage() == (5 + 3 * 2 + 3 * 1, 5 + 1)
    clock.now += 4
    assert engine.take_usage() == (4, 4)
    list(engine.answers("d"))
    assert engine.take_usage() == (2, 0)


def test_idle_begins_where_a_caller_drops_what_is_asked(clock: Clock) -> None:
    engine = TimedEngine(Engine(clock))
    answers = engine.answers("abc")
    next(answers)
    answers.close()
    clock.now += 7
    assert engine.take_usage() == (9, 7)


def test_idle_of_an_engine_at_work_is_none(clock: Clock) -> None:
    engine = TimedEngine(Engine(clock))
    answers = engine.answers("abc")
    next(answers)
    clock.now += 7
    assert engine.take_usage() == (9, 0)


def test_engine_is_asked_in_the_thread_that_it_lives_in(clock: Clock) -> None:
    engine = TimedEngine(Engine(clock))
    with ThreadPoolExecutor(1, "another") as another:
        with pytest.raises(RuntimeError, match=naming("thread another_0")):
            another.submit(next, engine.answers("abc")).result()
        answers = engine.answers("abc")
        assert next(answers) == "a"
        with pytest.raises(RuntimeError, match="not its own"):
            another.submit(next, answers).result()
        theirs = another.submit(TimedEngine, Engine(clock)).result()
        assert another.submit(list, theirs.answers("abc")).result() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("home", "own", "expected"),
    [("/shared", None, "/shared/vllm"), ("/shared", "/mine", "/mine"), ("", None, None)],
)
def test_compiled_graphs_lie_in_the_shared_cache(
    small_settings: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
    home: str,
    own: str | None,
    expected: str | None,
) -> None:
    plan = build_plan(small_settings())
    monkeypatch.setenv("FACTSWEEP_HOME", home)
    monkeypatch.setenv("VLLM_CACHE_ROOT", own or "restored at the end")
    if own is None:
        monkeypatch.delenv("VLLM_CACHE_ROOT")
    engine.load(plan.run, plan.weights)
    assert os.environ.get("VLLM_CACHE_ROOT") == expected


class _Told(FakeEngine):
    """Keeps its requests."""

    def __init__(self, requests_seen: list[Request]) -> None:
        super().__init__()
        self._asked = requests_seen

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        return super().answers(
            request for request in requests if self._asked.append(request) is None
        )


def test_model_that_is_prompted_is_loaded_once_and_answers_anew(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    requests_seen: list[Request] = []
    loads: list[object] = []
    monkeypatch.setattr(engine, "load", lambda *args: loads.append(args) or _Told(requests_seen))
    ask_all = build_prompter("smollm2-135m")
    assert not loads
    prompts = ["Write a sentence."] * 4
    answers = [*ask_all(prompts), *ask_all(prompts)]
    assert len(loads) == 1
    assert sorted(place for place, _ in answers) == sorted([*range(4)] * 2)
    assert len({text for _, text in answers}) > 1
    second_ask = build_prompter("smollm2-135m")
    assert [text for _, text in second_ask(prompts * 2)] == [text for _, text in answers]
    assert tokenizer.decode(requests_seen[0].token_ids).endswith(
        "<|im_start|>user\nWrite a sentence.<|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(InputError, match=naming("nosuch", "conf/model/")):
        build_prompter("nosuch")

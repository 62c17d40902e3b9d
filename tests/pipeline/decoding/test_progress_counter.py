"""What engines report is counted once, and an engine at work is alive."""

from collections.abc import Callable

import pytest

from factsweep.pipeline.decoding import progress_counter as module
from factsweep.pipeline.decoding.progress_counter import Lives, Tally

Wait = Callable[[float], None]
STALL_S = 600.0


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Lets time pass, for the tally alone."""
    time_s = 1000.0

    def wait(seconds: float) -> None:
        nonlocal time_s
        time_s += seconds

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return time_s

    monkeypatch.setattr(module, "time", Clock)
    return wait


@pytest.fixture
def tally() -> Tally:
    """Two shards of 100 answers each; an engine has begun the first."""
    tally = Tally(STALL_S)
    tally.announce({"one": 100, "two": 100})
    tally.begin("first", "one", 100)
    return tally


def counted(tally: Tally, name: str) -> float:
    return tally.read()[0][name]


def test_tally_settings_are_announced_one_after_the_other_and_once(tally: Tally) -> None:
    for _ in range(2):
        tally.announce({"two": 100, "three": 50}, to_come=1)
    counts = [counted(tally, name) for name in ("all_shards", "all_answers", "to_come")]
    assert counts == [3, 250, 1]


def test_tally_engine_in_a_long_batch_is_alive_until_the_watchdog_ends_it(
    wait: Wait, tally: Tally
) -> None:
    wait(STALL_S)
    assert counted(tally, "engines") == 1
    wait(1)
    assert counted(tally, "engines") == 0


def test_tally_engine_without_a_shard_is_alive_for_half_a_minute(wait: Wait, tally: Tally) -> None:
    tally.end("first", "one")
    wait(30)
    assert counted(tally, "engines") == 1
    wait(1)
    assert counted(tally, "engines") == 0


def test_tally_engine_whose_shard_went_to_another_is_not_at_work(wait: Wait, tally: Tally) -> None:
    wait(40)
    tally.begin("second", "one", 100)
    assert counted(tally, "engines") == 1


def test_tally_answers_lost_with_an_engine_are_left_once_more(tally: Tally) -> None:
    tally.add({"answers": 70, "prompts": 70}, "first", "one")
    assert counted(tally, "answers") == 70
    assert tally.begin("second", "one", 50).n_lost == 20  # half of them had been published
    assert counted(tally, "again") == 20
    assert counted(tally, "answers") == 50
    tally.add({"answers": 50, "prompts": 50}, "second", "one")
    tally.end("second", "one")
    assert (counted(tally, "answers"), counted(tally, "decoded")) == (100, 120)


def test_tally_shard_with_condemned_prompts_leaves_nothing_behind(tally: Tally) -> None:
    tally.add({"answers": 97}, "first", "one")
    tally.add({"shards": 1, "errors": 3}, "first", "one")
    tally.end("first", "one")
    assert counted(tally, "answers") == 100


def test_tally_engine_at_its_next_shard_while_it_publishes_one(tally: Tally) -> None:
    tally.add({"answers": 97}, "first", "one")
    tally.begin("first", "two", 100)
    tally.add({"answers": 10}, "first", "two")
    assert counted(tally, "answers") == 107
    tally.end("first", "one")
    assert counted(tally, "answers") == 110
    assert counted(tally, "engines") == 1


def test_tally_asked_to_stop_says_so_at_begin_and_report(tally: Tally) -> None:
    assert not tally.add({"answers": 1}, "first", "one")
    tally.stop()
    assert tally.add({}, "first")
    assert tally.begin("second", "two", 100).stop


def test_tally_restarted_takes_reports_of_engines_it_never_met() -> None:
    tally = Tally(STALL_S)
    assert not tally.add({"answers": 5}, "stranger", "one")
    tally.end("stranger", "one")
    assert counted(tally, "decoded") == 5


def test_tally_sentences_are_read_once() -> None:
    tally = Tally()
    tally.add_note("first prompt")
    assert (tally.read()[1], tally.read()[1]) == (["first prompt"], [])


OOM = "OutOfMemoryError: no room"


def die(lives: Lives, cause: str, task: str | None = None, place: str = "a") -> str | None:
    """One engine is born, is asked something if it loads, and dies."""
    lives.register_engine(place, "node", f"{place}.err")
    if task is not None:
        lives.set_task(place, task)
    return lives.note_death(place, cause)


@pytest.fixture
def lives() -> Lives:
    """On several machines."""
    return Lives(3, one_machine=False)


NEVER_LOADS = (
    "does not load: 3 engines in a row died, the last of OutOfMemoryError: no room; its log is "
    "a.err."
)
A, B = "RuntimeError: process 17", "RuntimeError: process 18"


@pytest.mark.parametrize(
    ("max_deaths", "one_machine", "deaths", "reason"),
    [
        (3, False, [(OOM, None)] * 3, NEVER_LOADS),
        (3, True, [(A, None), (B, None)], "does not load: 2 engines in a row"),  # the same error
        (3, True, [("RuntimeError: a", None), ("RuntimeError: b", None)], None),
        (3, False, [(OOM, "shard"), (OOM, "one"), (OOM, "two")], "answers nothing: 3 engines"),
        (1, False, [(OOM, "shard"), (OOM, "one")], "answers nothing: 2 engines"),
        (3, True, [(OOM, "shard")] * 9, None),  # one prompt kills them
    ],
)
def test_lives_engines_are_given_up_after_deaths_that_no_prompt_explains(
    max_deaths: int, one_machine: bool, deaths: list[tuple[str, str | None]], reason: str | None
) -> None:
    lives = Lives(max_deaths, one_machine=one_machine)
    *before_last, last = [die(lives, cause, task) for cause, task in deaths]
    assert not any(before_last)
    assert (last or "").startswith(reason or "")
    assert (last is None) == (reason is None)
    assert lives.suspects("a") == list(
        dict.fromkeys(task or f"loading {i}" for i, (_, task) in enumerate(deaths, 1))
    )


def test_lives_answer_clears_the_engine_and_places_are_counted_apart(lives: Lives) -> None:
    die(lives, OOM, "shard")
    die(lives, OOM, "one")
    lives.clear_deaths("a")
    assert lives.suspects("a") == []
    assert die(lives, OOM, "two") is None
    assert [die(lives, OOM, place=place) for place in "abcdef"] == [None] * 6


def test_lives_engine_that_dies_without_a_word_is_reported_by_the_next(lives: Lives) -> None:
    assert lives.register_engine("a", "node", "first.err") is None
    lives.set_task("a", "shard")
    assert lives.register_engine("a", "node", "second.err") == "first.err"
    lives.note_death("a", OOM)
    assert lives.suspects("a") == ["shard"]
    assert lives.last_death() == "OutOfMemoryError: no room; its log is first.err"


def test_lives_engine_that_ended_in_order_or_with_its_node_is_no_death(lives: Lives) -> None:
    lives.register_engine("a", "node", "first.err")
    assert lives.register_engine("a", "another", "second.err") is None
    lives.note_end("a")
    assert lives.register_engine("a", "another", "third.err") is None


def test_lives_forgotten_by_a_restarted_tally_do_no_harm(lives: Lives) -> None:
    lives.set_task("stranger", "shard")
    assert lives.note_death("stranger", OOM) is None

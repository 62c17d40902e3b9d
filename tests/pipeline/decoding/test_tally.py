"""What engines report is counted once, and an engine at work is alive."""

from collections.abc import Callable

import pytest

from factsweep.pipeline.decoding import tally as module
from factsweep.pipeline.decoding.tally import Lives, Tally

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
    assert tally.begin("second", "one", 50).again == 20  # half of them had been published
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
def on_cluster() -> Lives:
    """On several machines."""
    return Lives(3, one_machine=False)


@pytest.fixture
def on_host() -> Lives:
    """On one machine."""
    return Lives(3, one_machine=True)


def test_lives_engines_that_never_load_are_given_up_after_max_deaths(on_cluster: Lives) -> None:
    assert [die(on_cluster, OOM), die(on_cluster, OOM)] == [None, None]
    assert die(on_cluster, OOM) == (
        "does not load: 3 engines in a row died, the last of OutOfMemoryError: no room; "
        "its log is a.err."
    )


def test_lives_same_error_twice_on_one_machine_is_enough(on_host: Lives) -> None:
    assert die(on_host, "RuntimeError: process 17") is None
    assert "does not load: 2 engines" in (die(on_host, "RuntimeError: process 18") or "")


def test_lives_two_errors_on_one_machine_may_be_chance(on_host: Lives) -> None:
    assert [die(on_host, "RuntimeError: a"), die(on_host, "RuntimeError: b")] == [None, None]


def test_lives_engine_that_dies_of_any_prompt_answers_nothing(on_cluster: Lives) -> None:
    outcomes = [die(on_cluster, OOM, task) for task in ("shard", "one", "two")]
    assert outcomes[:2] == [None, None]
    assert "answers nothing: 3 engines" in (outcomes[2] or "")


def test_lives_prompt_that_kills_alone_is_one_suspect(on_host: Lives) -> None:
    assert [die(on_host, OOM, "shard") for _ in range(9)] == [None] * 9
    assert on_host.suspects("a") == ["shard"]


def test_lives_answer_clears_the_engine(on_cluster: Lives) -> None:
    die(on_cluster, OOM, "shard")
    die(on_cluster, OOM, "one")
    on_cluster.clear_deaths("a")
    assert on_cluster.suspects("a") == []
    assert die(on_cluster, OOM, "two") is None


def test_lives_places_are_counted_apart(on_cluster: Lives) -> None:
    assert [die(on_cluster, OOM, place=place) for place in "abcdef"] == [None] * 6


def test_lives_one_death_allowed_is_still_two(on_cluster: Lives) -> None:
    lives = Lives(1, one_machine=False)
    assert die(lives, OOM, "shard") is None
    assert die(lives, OOM, "one") is not None


def test_lives_engine_that_dies_without_a_word_is_told_by_the_next(on_cluster: Lives) -> None:
    assert on_cluster.register_engine("a", "node", "first.err") is None
    on_cluster.set_task("a", "shard")
    assert on_cluster.register_engine("a", "node", "second.err") == "first.err"
    on_cluster.note_death("a", OOM)
    assert on_cluster.suspects("a") == ["shard"]
    assert on_cluster.last_death() == "OutOfMemoryError: no room; its log is first.err"


def test_lives_engine_lost_with_its_node_is_no_death(on_cluster: Lives) -> None:
    on_cluster.register_engine("a", "node", "first.err")
    assert on_cluster.register_engine("a", "another", "second.err") is None


def test_lives_engine_that_ended_in_order_is_no_death(on_cluster: Lives) -> None:
    on_cluster.register_engine("a", "node", "first.err")
    on_cluster.note_end("a")
    assert on_cluster.register_engine("a", "node", "second.err") is None


def test_lives_forgotten_by_a_restarted_tally_do_no_harm(on_cluster: Lives) -> None:
    on_cluster.set_task("stranger", "shard")
    assert on_cluster.note_death("stranger", OOM) is None

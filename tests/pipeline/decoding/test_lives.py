"""When engines are given up: the place or the machine is at fault, not a prompt."""

import pytest

from factsweep.pipeline.decoding.tally import Lives

OOM = "OutOfMemoryError: no room"


def die(lives: Lives, cause: str, asked: str | None = None, place: str = "a") -> str | None:
    """One engine is born, is asked something if it loads, and dies."""
    lives.born(place, "node", f"{place}.err")
    if asked is not None:
        lives.asked(place, asked)
    return lives.died(place, cause)


@pytest.fixture
def many() -> Lives:
    """On several machines."""
    return Lives(3, one_machine=False)


@pytest.fixture
def one() -> Lives:
    """On one machine."""
    return Lives(3, one_machine=True)


def test_lives_engines_that_never_load_are_given_up_after_max_deaths(many: Lives) -> None:
    assert [die(many, OOM), die(many, OOM)] == [None, None]
    assert die(many, OOM) == (
        "does not load: 3 engines in a row died, the last of OutOfMemoryError: no room; "
        "its log is a.err."
    )


def test_lives_same_error_twice_on_one_machine_is_enough(one: Lives) -> None:
    assert die(one, "RuntimeError: process 17") is None
    assert "does not load: 2 engines" in (die(one, "RuntimeError: process 18") or "")


def test_lives_two_errors_on_one_machine_may_be_chance(one: Lives) -> None:
    assert [die(one, "RuntimeError: a"), die(one, "RuntimeError: b")] == [None, None]


def test_lives_engine_that_dies_of_any_prompt_answers_nothing(many: Lives) -> None:
    found = [die(many, OOM, asked) for asked in ("shard", "one", "two")]
    assert found[:2] == [None, None]
    assert "answers nothing: 3 engines" in (found[2] or "")


def test_lives_prompt_that_kills_alone_is_one_suspect(one: Lives) -> None:
    assert [die(one, OOM, "shard") for _ in range(9)] == [None] * 9
    assert one.suspects("a") == ["shard"]


def test_lives_answer_clears_the_engine(many: Lives) -> None:
    die(many, OOM, "shard")
    die(many, OOM, "one")
    many.answered("a")
    assert many.suspects("a") == []
    assert die(many, OOM, "two") is None


def test_lives_places_are_counted_apart(many: Lives) -> None:
    assert [die(many, OOM, place=place) for place in "abcdef"] == [None] * 6


def test_lives_one_death_allowed_is_still_two(many: Lives) -> None:
    lives = Lives(1, one_machine=False)
    assert die(lives, OOM, "shard") is None
    assert die(lives, OOM, "one") is not None


def test_lives_engine_that_dies_without_a_word_is_told_by_the_next(many: Lives) -> None:
    assert many.born("a", "node", "first.err") is None
    many.asked("a", "shard")
    assert many.born("a", "node", "second.err") == "first.err"
    many.died("a", OOM)
    assert many.suspects("a") == ["shard"]
    assert many.last_death() == "OutOfMemoryError: no room; its log is first.err"


def test_lives_engine_lost_with_its_node_is_no_death(many: Lives) -> None:
    many.born("a", "node", "first.err")
    assert many.born("a", "another", "second.err") is None


def test_lives_engine_that_ended_in_order_is_no_death(many: Lives) -> None:
    many.born("a", "node", "first.err")
    many.ended("a")
    assert many.born("a", "node", "second.err") is None


def test_lives_forgotten_by_a_restarted_tally_do_no_harm(many: Lives) -> None:
    many.asked("stranger", "shard")
    assert many.died("stranger", OOM) is None

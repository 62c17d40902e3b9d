"""How many requests are sent at once, against servers that are a formula."""

import heapq
from collections.abc import Callable

from factsweep.operators.engines.endpoint.rate_limited_http import ConcurrencyLimit

Serves = Callable[[int], float]  # how long a request takes with so many at once


def simulated(limit: ConcurrencyLimit, serves: Serves, n: int) -> tuple[float, list[int]]:
    """The seconds that n requests take, and how many were allowed at each answer."""
    clock, running, started, numbers = 0.0, list[float](), 0, list[int]()
    while len(numbers) < n:
        while started < n and len(running) < limit.allowed:
            started += 1
            heapq.heappush(running, clock + serves(len(running) + 1))
        clock = heapq.heappop(running)
        limit.note_answer(clock)
        numbers.append(limit.allowed)
    return clock, numbers


def batching(at_once: int) -> Serves:
    """A server that answers so many at once in a second, and more of them one after the other."""
    return lambda n: max(1.0, n / at_once)


def test_limit_rises_until_a_server_gives_no_more() -> None:
    seconds, numbers = simulated(ConcurrencyLimit(max=256), batching(at_once=32), 2000)
    assert 32 <= numbers[-1] <= 100
    assert seconds < 1.2 * 2000 / 32


def test_limit_rises_over_shards_whose_last_answer_takes_long() -> None:
    """While that is waited for, nothing else is under way: that the rate is low says nothing."""
    limit, clock = ConcurrencyLimit(max=256), 0.0
    for _ in range(12):
        limit.is_fed, n_left, running = True, 40, list[float]()
        while n_left or running:
            while n_left and len(running) < limit.allowed:
                n_left -= 1
                heapq.heappush(running, clock + (1.0 if n_left else 20.0))
            limit.is_fed = n_left > 0
            clock = heapq.heappop(running)
            limit.note_answer(clock)
    assert limit.allowed >= 32


def test_limit_start_goes_on_after_one_round_that_was_slow_by_chance() -> None:
    limit, clock = ConcurrencyLimit(max=64), 0.0
    seconds = [2.0, 4.0, 1.0]  # of a round: the second took as long as if it had gained nothing
    for duration in seconds:
        n = 2 * limit.allowed
        for _ in range(n + (limit.allowed == 4)):
            clock += duration / n
            limit.note_answer(clock)
    assert limit.allowed == 16


def test_limit_after_the_start_rises_by_one_unless_the_server_became_slower() -> None:
    limit, clock = ConcurrencyLimit(max=64, allowed=8), 0.0
    limit.note_refusal(clock)
    numbers = list[int]()
    for duration in [1.0, 1.0, 5.0, 5.0]:
        n = 2 * limit.allowed
        for _ in range(n + (not numbers)):
            clock += duration / n
            limit.note_answer(clock)
        numbers.append(limit.allowed)
    assert numbers == [5, 6, 6, 7]


def test_limit_never_exceeds_its_maximum() -> None:
    _, numbers = simulated(ConcurrencyLimit(max=7), lambda _: 1.0, 500)
    assert max(numbers) == numbers[-1] == 7


def test_limit_of_one_stays_one() -> None:
    assert simulated(ConcurrencyLimit(max=1), lambda _: 1.0, 50)[1][-1] == 1


def test_limit_refused_halves_at_once_and_rises_by_one() -> None:
    limit = ConcurrencyLimit(max=100, allowed=40)
    limit.note_refusal(now_s=1.0)
    assert limit.allowed == 20
    for second in range(41):
        limit.note_answer(now_s=2.0 + second)
    assert limit.allowed == 21


def test_limit_refused_many_times_is_at_least_one() -> None:
    limit = ConcurrencyLimit(max=100)
    for second in range(20):
        limit.note_refusal(now_s=float(second))
    assert limit.allowed == 1


def test_limit_refusals_of_one_burst_count_once() -> None:
    limit = ConcurrencyLimit(max=100, allowed=40)
    for _ in range(40):
        limit.note_refusal(now_s=2.0, sent=1.0)
    assert limit.allowed == 20

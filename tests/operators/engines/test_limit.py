"""How many requests are sent at once, against servers that are a formula."""

import heapq
from collections.abc import Callable

import pytest

from operators.engines.limit import Limit

Serves = Callable[[int], float]  # how long a request takes with so many at once


def simulated(limit: Limit, serves: Serves, n: int) -> tuple[float, list[int]]:
    """The seconds that n requests take, and how many were allowed at each answer."""
    now, running, started, seen = 0.0, list[float](), 0, list[int]()
    while len(seen) < n:
        while started < n and len(running) < limit.allowed:
            started += 1
            heapq.heappush(running, now + serves(len(running) + 1))
        now = heapq.heappop(running)
        limit.answered(now)
        seen.append(limit.allowed)
    return now, seen


def batching(at_once: int) -> Serves:
    """A server that answers so many at once in a second, and more of them one after the other."""
    return lambda n: max(1.0, n / at_once)


def test_limit_rises_until_a_server_gives_no_more() -> None:
    seconds, seen = simulated(Limit(max=256), batching(at_once=32), 2000)
    assert 32 <= seen[-1] <= 100
    assert seconds < 1.2 * 2000 / 32


def test_limit_never_exceeds_its_maximum() -> None:
    _, seen = simulated(Limit(max=7), lambda _: 1.0, 500)
    assert max(seen) == seen[-1] == 7


def test_limit_of_one_stays_one() -> None:
    assert simulated(Limit(max=1), lambda _: 1.0, 50)[1][-1] == 1


def test_limit_refused_halves_at_once_and_rises_by_one() -> None:
    limit = Limit(max=100, allowed=40)
    limit.refused(now=1.0)
    assert limit.allowed == 20
    for second in range(41):
        limit.answered(now=2.0 + second)
    assert limit.allowed == 21


def test_limit_refused_many_times_is_at_least_one() -> None:
    limit = Limit(max=100)
    for second in range(20):
        limit.refused(now=float(second))
    assert limit.allowed == 1


def test_limit_refusals_of_one_burst_count_once() -> None:
    limit = Limit(max=100, allowed=40)
    for _ in range(40):
        limit.refused(now=2.0, sent=1.0)
    assert limit.allowed == 20


@pytest.mark.parametrize("order", [(5.0, 1.0), (1.0, 5.0)])
def test_limit_longest_pause_counts(order: tuple[float, float]) -> None:
    limit = Limit(max=4)
    for retry_after in order:
        limit.refused(now=10.0, retry_after=retry_after)
    assert limit.closed_until == 15.0

"""A pool of servers on real sockets: prompts go to the free one, and leave one that fails."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from factsweep.operators.engines.endpoint import EndpointEngine, servers
from factsweep.operators.engines.endpoint.rate_limited_http import ConcurrencyLimit
from factsweep.operators.engines.endpoint.servers import check_servers
from factsweep.operators.engines.protocol import Answer, Endpoint
from factsweep.operators.errors import InputError, UnavailableError
from tests.chat_server import HANG_UP, ChatServer, Said, serving
from tests.messages import naming
from tests.operators.engines.endpoint.test_endpoint import (
    body,
    engine,
    error,
    prompt_of,
    requests,
    well,
)


@dataclass
class Member:
    """A server of a pool: answers each prompt, or does as `state` says from its `after`-th on."""

    state: str = "well"  # well, dead, busy, broken, stalled
    after: int = 0
    identity: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    answered: Counter[str] = field(default_factory=Counter)
    n_asked: int = 0
    goes_on: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: dict[str, Any]) -> Said:
        self.n_asked += 1
        if self.n_asked > self.after:
            if self.state == "dead":
                return HANG_UP, ""
            if self.state == "busy":
                return 429, {"error": {"message": "slow down"}}, {"Retry-After": "50"}
            if self.state == "broken":
                return error(500, "boom")
            if self.state == "stalled":
                self.goes_on.wait(60)
        self.answered[prompt_of(request)] += 1
        return well(request)

    def page(self, path: str) -> Said:
        """What it says of its model and its version."""
        if self.state == "dead" and self.n_asked >= self.after:
            return HANG_UP, ""
        if path == "/version":
            return (200, {"version": self.version}) if self.version else (404, {})
        return 200, {"data": [{"id": "some-model", **self.identity}]}


@contextmanager
def pool(*members: Member) -> Iterator[list[ChatServer]]:
    """A server for each member."""
    with ExitStack() as stack:
        started = [stack.enter_context(serving(member)) for member in members]
        for server, member in zip(started, members, strict=True):
            server.page = member.page
        yield started


def ask(*members: Member, n: int = 60, **options: Any) -> list[Any]:
    with pool(*members) as started, engine(*started, **options) as client:
        return list(client.answers(requests(n)))


def check_answered_once(results: list[Any], *members: Member, n: int = 60) -> None:
    assert all(isinstance(result, Answer) for result in results)
    assert len(results) == n
    answered = sum((member.answered for member in members), Counter[str]())
    assert answered == Counter(f"prompt number {i}" for i in range(n))


def test_servers_of_uneven_speed_answer_every_prompt_once_and_the_faster_one_more() -> None:
    fast, slow = Member(), Member()
    with pool(fast, slow) as started:
        started[1].pause_s = 0.2
        with engine(*started) as client:
            results = list(client.answers(requests(60)))
    check_answered_once(results, fast, slow)
    assert 0 < slow.n_asked < fast.n_asked / 2


def test_servers_one_that_turns_away_is_left_alone_as_long_as_it_wishes() -> None:
    well_, busy = Member(), Member("busy", after=5)
    check_answered_once(ask(well_, busy), well_, busy)
    assert busy.n_asked <= 5 + 16  # what was under way together


@pytest.mark.parametrize("state", ["dead", "broken", "stalled"])
def test_servers_one_that_fails_gives_its_prompts_to_the_other(state: str) -> None:
    well_, failing = Member(), Member(state, after=5)
    with pool(well_, failing) as started, engine(*started, timeout_s=1.0) as client:
        results = list(client.answers(requests(60)))
        faults = client.faults()
    failing.goes_on.set()
    check_answered_once(results, well_, failing)
    assert failing.answered.total() == 5
    assert faults["failed" if state != "stalled" else "timed_out"] >= 1


def wait_until(client: EndpointEngine, n_down: int) -> None:
    ends, down = time.monotonic() + 30, 0.0
    while time.monotonic() < ends:
        down += client.faults().get("down", 0)
        if down == n_down:
            return
        time.sleep(0.01)
    pytest.fail(f"{down} servers are down, not {n_down}")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is lost after one failure, and asked for its model soon."""
    monkeypatch.setattr(servers, "_MOST_FAILURES", 1)
    monkeypatch.setattr(servers, "_SILENT_S", 0.3)


@pytest.mark.usefixtures("hasty")
def test_servers_one_that_comes_back_is_asked_again() -> None:
    well_, failing = Member(), Member("dead", after=5)
    with pool(well_, failing) as started, engine(*started) as client:
        started[0].pause_s = 0.05
        list(client.answers(requests(60)))
        wait_until(client, 1)
        failing.state = "well"
        wait_until(client, -1)
        results = list(client.answers(requests(60)))
    assert len(results) == 60
    assert failing.answered.total() > 5


@pytest.mark.usefixtures("hasty")
def test_servers_one_that_comes_back_with_another_model_ends_the_run() -> None:
    well_, failing = (Member(identity={"root": "step-1000"}) for _ in range(2))
    failing.state, failing.after = "dead", 5
    with pool(well_, failing) as started, engine(*started) as client:
        started[0].pause_s = 0.05
        list(client.answers(requests(60)))
        wait_until(client, 1)
        failing.state, failing.identity = "well", {"root": "step-2000"}
        with pytest.raises(InputError, match=naming("root=step-1000", "root=step-2000")) as caught:
            list(client.answers(requests(1000)))
    assert all(server.url in str(caught.value) for server in started)
    assert failing.answered.total() == 5


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        ({"identity": {"root": "a"}}, {"identity": {"root": "b"}}, ("root=a", "root=b")),
        (
            {"identity": {"max_model_len": 4096}},
            {"identity": {"max_model_len": 2048}},
            ("max_model_len=4096", "max_model_len=2048"),
        ),
        ({"version": "0.31"}, {"version": "0.32"}, ("version=0.31", "version=0.32")),
        ({"version": "0.31"}, {"identity": {"root": "a"}}, ("=None",)),
    ],
)
def test_servers_of_different_models_are_refused_with_both_named(
    left: dict[str, Any], right: dict[str, Any], difference: tuple[str, ...]
) -> None:
    with pool(Member(**left), Member(**right)) as started:
        endpoint = Endpoint(tuple(s.url for s in started), "MY_API_KEY", 5.0, 20.0, 16, chat=False)
        for begin in (lambda: check_servers(endpoint, "some-model"), lambda: ask_first(started)):
            with pytest.raises(InputError) as caught:
                begin()
            sentence = str(caught.value)
            assert all(part in sentence for part in difference)
            assert all(server.url in sentence for server in started)
        assert not any(server.requests for server in started)


def ask_first(started: list[ChatServer]) -> None:
    with engine(*started) as client:
        list(client.answers(requests(1)))


def test_servers_with_several_models_and_not_this_one_are_refused() -> None:
    with pool(Member(), Member()) as started:
        entries = [{"id": "a"}, {"id": "b"}]
        started[1].page = lambda _: (200, {"data": entries})
        with pytest.raises(InputError, match=naming("a, b", "some-model", started[1].url)):
            ask_first(started)


def test_servers_one_that_is_not_there_at_the_start_is_done_without() -> None:
    well_, missing = Member(), Member("dead")
    with pool(well_, missing) as started:
        endpoint = Endpoint(tuple(s.url for s in started), "MY_API_KEY", 5.0, 20.0, 16, chat=False)
        assert check_servers(endpoint, "some-model") == [started[1].url]
        with engine(*started) as client:
            check_answered_once(list(client.answers(requests(60))), well_)
    assert missing.n_asked == 0


@pytest.mark.slow
def test_servers_that_all_die_end_the_run_for_now_with_what_was_answered() -> None:
    dying = [Member("dead", after=5), Member("dead", after=5)]
    results = []
    with pool(*dying) as started, engine(*started, give_up_s=1.0) as client:
        with pytest.raises(UnavailableError, match=naming("some-model", "no answer")):
            results += [*client.answers(requests(60))]
        with pytest.raises(UnavailableError) as caught:
            ask_first(started)
    assert caught.value.exit_code == 75
    assert sum(member.answered.total() for member in dying) == 10


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_servers_busy_with_other_prompts_are_no_reason_to_give_a_prompt_up() -> None:
    """Prompts of the lost server wait for the other one longer than `give_up_s`."""
    slow, failing = Member(), Member("dead", after=1)
    with pool(slow, failing) as started:
        started[0].pause_s, started[1].pause_s = 0.3, 0.1
        with engine(*started, give_up_s=2.5) as client:
            for server, n in zip(client._servers.all, (1, 12), strict=True):
                server.limit = ConcurrencyLimit(max=n, allowed=n)
            results = list(client.answers(requests(13)))
    check_answered_once(results, slow, failing, n=13)


def test_servers_one_that_reads_no_prompt_is_named(subtests: pytest.Subtests) -> None:
    for status in (401, 404):
        with subtests.test(status), pool(Member(), Member()) as started:
            started[1].answer = lambda _: error(status, "no such thing")  # noqa: B023
            with engine(*started) as client, pytest.raises(InputError) as caught:
                list(client.answers(requests(60)))
            assert f"{started[1].url}/completions: Error code: {status}" in str(caught.value)


def test_servers_share_the_addresses_that_are_asked_and_the_key() -> None:
    with pool(Member(), Member()) as started, engine(*started, chat=True) as client:
        list(client.answers(requests(30)))
    for server in started:
        assert {*server.paths} == {"/v1/chat/completions"}
        assert len({*server.keys}) == 1
    assert body(started[0].requests[0])

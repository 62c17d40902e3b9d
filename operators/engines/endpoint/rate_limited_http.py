"""The HTTP client of an endpoint: it learns how many concurrent requests a server takes.

As TCP learns its window: the number doubles at the start while that gives more answers per second,
then grows by one per round, and is halved when the server is overloaded, fails, or is late. The
client above (`openai`) sends requests again, and waits as long as a server wishes.
"""

import asyncio
import re
import time
from collections import Counter
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from factsweep.operators.engines.endpoint.response_parsing import message_in, parse, status_of_body

if TYPE_CHECKING:
    from factsweep.operators.engines.endpoint.servers import Server, Servers

NO_CREDIT = re.compile(r"insufficient_quota|billing|no credit|credit balance|402", re.IGNORECASE)
# Messages of servers that give one completion per request, some with a status of 500.
_REFUSES_N = re.compile(
    r"\bn\b|\b(?:one|single|multiple) (?:completion|choice|generation)", re.IGNORECASE
)
_OVERLOADED = (408, 429, 503, 529)  # statuses
_FASTER = 1.05  # times the rate of an earlier round: less is noise
_SLOWER = 0.9
_FLAT_ROUNDS = 2  # without more answers per second: a single one may be chance


@dataclass
class ConcurrencyLimit:
    """The number of concurrent requests: `allowed`.

    Times are seconds of a monotonic clock. A round is twice as many answers as requests are
    allowed. `is_fed`: more requests are waiting; the rate of the last answers says nothing.
    """

    max: int
    allowed: int = 4
    is_fed: bool = True
    _is_start: bool = True
    _answers: int = 0
    _seconds: float = 0.0
    _last: float | None = None
    _rate: float = 0.0  # answers per second of an earlier round; at the start, with fewer requests
    _flat: int = 0
    _lowered: float = float("-inf")

    def __post_init__(self) -> None:
        """Begin within the maximum."""
        self.allowed = min(self.allowed, self.max)

    def note_answer(self, now_s: float) -> None:
        """Count an answer of the server."""
        if self._last is not None and self.is_fed:
            self._answers += 1
            self._seconds += now_s - self._last
        self._last = now_s if self.is_fed else None
        if self._answers < 2 * self.allowed:
            return
        rate = self._answers / max(self._seconds, 1e-9)
        self._answers, self._seconds, step = 0, 0.0, 0
        if not self._is_start:
            step, self._rate = int(rate >= _SLOWER * self._rate), rate
        elif rate > _FASTER * self._rate:
            step, self._rate, self._flat = self.allowed, rate, 0
        else:
            self._flat += 1
            self._is_start = self._flat < _FLAT_ROUNDS
        self.allowed = min(self.max, self.allowed + step)

    def note_refusal(self, now_s: float, *, sent: float | None = None) -> None:
        """Halve the number: the server refused a request, failed, or was late.

        A request `sent` before the number was last halved does not halve it again.
        """
        if sent is not None and sent <= self._lowered:
            return
        self.allowed = max(1, self.allowed // 2)
        self._lowered, self._is_start = now_s, False
        self._answers, self._seconds, self._last, self._rate = 0, 0.0, None, 0.0


@dataclass
class Retries:
    """The tokens of a request's earlier replies, why the last was no answer, and its deadline."""

    billed: Counter[str] = field(default_factory=Counter)
    last_failure: str = ""
    patience: asyncio.Timeout | None = None

    def bill(self, n_prompt_tokens: int, n_output_tokens: int) -> None:
        """Count the tokens of a reply that is not the last one."""
        self.billed.update(prompt_tokens=n_prompt_tokens, completion_tokens=n_output_tokens)


RETRIES: ContextVar[Retries] = ContextVar("retries")  # of the request of this task


def rate_limited_client(servers: "Servers") -> Any:
    """An HTTP client that asks a free server, and teaches its limit."""
    import httpx2
    from openai import DefaultAsyncHttpxClient

    class Client(DefaultAsyncHttpxClient):
        async def send(self, request: Any, **options: Any) -> Any:
            async with servers.slot(request) as server:
                sent = time.monotonic()
                try:
                    response = await super().send(request, **options)
                except httpx2.TransportError as error:
                    is_late = isinstance(error, httpx2.TimeoutException)
                    servers.faults.put("timed_out" if is_late else "failed")
                    server.limit.note_refusal(time.monotonic(), sent=sent)
                    servers.note_failure(server, sent, is_late=is_late)
                    _note_failure(f"{type(error).__name__} {error}")
                    raise
                _note_reply(servers, server, request, response, sent)
            return response

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    # A redirect would send the prompts, and perhaps the key, to an unknown server.
    return Client(timeout=servers.endpoint.timeout_s, limits=limits, follow_redirects=False)


def _note_reply(
    servers: "Servers", server: "Server", request: Any, response: Any, sent: float
) -> None:
    """Learn from the status of a reply, and stop vain retries of the client above."""
    is_without_answer = set_status_of_body(response)
    time_s, status = time.monotonic(), response.status_code
    if status >= 400:
        _note_failure(error_message(response), response.content if is_without_answer else b"")
    if status == 429 and NO_CREDIT.search(response.text):
        response.headers["x-should-retry"] = "false"
    elif status in _OVERLOADED:
        servers.faults.put("turned_away")
        server.limit.note_refusal(time_s, sent=sent)
        servers.note_failure(server, sent, headers=response.headers)
    elif (
        status >= 500 and b'"n":' in request.content and _REFUSES_N.search(error_message(response))
    ):
        response.headers["x-should-retry"] = "false"
    elif status == 409 or status >= 500:
        servers.faults.put("failed")
        servers.note_failure(server, sent)
    else:
        server.note_life()
        # Fewer requests, before answers come too late.
        is_slow = time_s - sent > servers.endpoint.timeout_s / 2
        if status == 200 and is_slow:
            server.limit.note_refusal(time_s, sent=sent)
        elif status == 200:
            server.limit.note_answer(time_s)


def set_status_of_body(response: Any) -> bool:
    """Give a successful reply without an answer the status that its body names; is it one?"""
    if not response.is_success:
        return False
    response.status_code = status_of_body(response.content)
    response.extensions["is_without_answer"] = response.status_code != 200
    return bool(response.extensions["is_without_answer"])


def error_message(response: Any) -> str:
    """The status of an error and its message, as the server gave them."""
    message = message_in(response.content)
    if response.extensions.get("is_without_answer"):
        return f"status 200 without an answer: {message}"
    return f"Error code: {response.status_code} - {message}"


def _note_failure(reason: str, content: bytes = b"") -> None:
    if (retries := RETRIES.get(None)) is None:
        return
    retries.last_failure = reason
    with suppress(ValueError, TypeError, AttributeError):
        usage = parse(content).usage
        tokens = (usage.prompt_tokens, usage.completion_tokens)
        retries.bill(*(max(0, int(n or 0)) for n in tokens))

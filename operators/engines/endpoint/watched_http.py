"""The HTTP client of an endpoint: it learns how much a server takes, and waits when it says so."""

import asyncio
import math
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from factsweep.operators.engines.endpoint.reply import message_in, parse, status_of_body

_MORE = 1.05  # times the rate before: less is noise
_SLOWER = 0.9  # times the rate before
_FLAT = 2  # rounds without more answers per second: a single one may be chance


@dataclass
class Limit:
    """The number of requests at once (`allowed`), and until when none may be sent (`closed_until`).

    Times are seconds of any clock that does not go back. A round is twice as many answers as
    requests are allowed at once. `is_fed` says whether more requests are waiting: while the last
    ones are answered, fewer are under way than are allowed, and their rate says nothing.
    """

    max: int
    allowed: int = 4
    closed_until: float = 0.0
    is_fed: bool = True
    _is_start: bool = True
    _answers: int = 0
    _seconds: float = 0.0
    _last: float | None = None
    _rate: float = 0.0  # answers per second of an earlier round; at the start, with fewer at once
    _flat: int = 0
    _lowered: float = float("-inf")

    def __post_init__(self) -> None:
        """Begin with no more than there may be."""
        self.allowed = min(self.allowed, self.max)

    def answered(self, now: float) -> None:
        """The server gave an answer."""
        if self._last is not None and self.is_fed:
            self._answers += 1
            self._seconds += now - self._last
        self._last = now if self.is_fed else None
        if self._answers < 2 * self.allowed:
            return
        rate = self._answers / max(self._seconds, 1e-9)
        self._answers, self._seconds = 0, 0.0
        if self._is_start:
            self._start(rate)
        else:
            if rate >= _SLOWER * self._rate:
                self._raise(1)
            self._rate = rate

    def _start(self, rate: float) -> None:
        if rate > _MORE * self._rate:
            self._rate, self._flat = rate, 0
            self._raise(self.allowed)
            return
        self._flat += 1
        self._is_start = self._flat < _FLAT

    def _raise(self, step: int) -> None:
        self.allowed = min(self.max, self.allowed + step)

    def refused(self, now: float, *, sent: float | None = None, retry_after: float = 0.0) -> None:
        """The server turned a request away, failed, or did not answer in time.

        What was `sent` before the number was lowered for the last time says nothing about the new
        number, and does not lower it again.
        """
        self.pause(now + retry_after)
        if sent is not None and sent <= self._lowered:
            return
        self.allowed = max(1, self.allowed // 2)
        self._lowered, self._is_start = now, False
        self._answers, self._seconds, self._last, self._rate = 0, 0.0, None, 0.0

    def pause(self, until: float) -> None:
        """Let no request be sent before a time; a later one that was given already stays."""
        self.closed_until = max(self.closed_until, until)


NO_CREDIT = re.compile(r"insufficient_quota|billing|no credit|credit balance|402", re.IGNORECASE)
# What servers say that give one completion per request, some with a status of their own failures.
_REFUSES_N = re.compile(
    r"\bn\b|\b(?:one|single|multiple) (?:completion|choice|generation)", re.IGNORECASE
)
_TOO_MUCH = (408, 429, 503, 529)  # statuses of a server that has too much to do
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass
class Troubles:
    """The tokens of a request's earlier replies, and why the last one was no answer."""

    billed: Counter[str] = field(default_factory=Counter)
    last: str = ""

    def bill(self, n_prompt_tokens: int, n_output_tokens: int) -> None:
        """Count the tokens of a reply that is not the last one."""
        self.billed.update(prompt_tokens=n_prompt_tokens, completion_tokens=n_output_tokens)


TROUBLES: ContextVar[Troubles] = ContextVar("troubles")  # of the request that is being asked


class Faults:
    """Calls that are asked again, by why (turned_away, timed_out, failed), until they are taken."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, why: str) -> None:
        """Count a call."""
        with self._lock:
            self._counts[why] += 1

    def take(self) -> dict[str, float]:
        """The counts since they were taken last."""
        with self._lock:
            found, self._counts = dict(self._counts), Counter()
        return {why: float(n) for why, n in found.items()}


def watched(limit: Limit, faults: Faults, timeout_s: float) -> Any:
    """An HTTP client that learns from all that happens, and waits when the server says so."""
    import httpx2
    from openai import DefaultAsyncHttpxClient

    class Watched(DefaultAsyncHttpxClient):
        async def send(self, request: Any, **options: Any) -> Any:
            await _turn(limit)
            sent = time.monotonic()
            try:
                response = await super().send(request, **options)
            except httpx2.TransportError as error:
                faults.add("timed_out" if isinstance(error, httpx2.TimeoutException) else "failed")
                limit.refused(time.monotonic(), sent=sent)
                _note_trouble(f"{type(error).__name__} {error}")
                raise
            is_without_answer = set_status_of_body(response)
            now, status = time.monotonic(), response.status_code
            if status >= 400:
                _note_trouble(said_in(response), response.content if is_without_answer else b"")
            if status in _TOO_MUCH:
                if status == 429 and NO_CREDIT.search(response.text):
                    response.headers["x-should-retry"] = "false"
                else:
                    faults.add("turned_away")
                    limit.refused(now, sent=sent, retry_after=waits_s(response.headers))
            elif status == 200:
                if now - sent > timeout_s / 2:  # fewer at once, before they come too late
                    limit.refused(now, sent=sent)
                else:
                    limit.answered(now)
                limit.pause(now + exhausted_s(response.headers))
            elif (
                status >= 500
                and b'"n":' in request.content
                and _REFUSES_N.search(said_in(response))
            ):
                response.headers["x-should-retry"] = "false"
            elif status == 409 or status >= 500:
                faults.add("failed")
            return response

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    # Another server than the one that was named would be sent the prompts, and perhaps the key.
    return Watched(timeout=timeout_s, limits=limits, follow_redirects=False)


async def _turn(limit: Limit) -> None:
    """Wait while nothing may be sent; not all that wait are to come back at the same moment."""
    while (wait_s := limit.closed_until - time.monotonic()) > 0:
        await asyncio.sleep(wait_s * (1 + 0.25 * secrets.randbelow(1000) / 1000))


def set_status_of_body(response: Any) -> bool:
    """Give a reply that calls itself one and is no answer the status that its body names."""
    if not response.is_success:
        return False
    response.status_code = status_of_body(response.content)
    response.extensions["is_without_answer"] = response.status_code != 200
    return bool(response.extensions["is_without_answer"])


def said_in(response: Any) -> str:
    """The status of an error and its message, as the server gave them."""
    message = message_in(response.content)
    if response.extensions.get("is_without_answer"):
        return f"status 200 without an answer: {message}"
    return f"Error code: {response.status_code} - {message}"


def _note_trouble(reason: str, content: bytes = b"") -> None:
    """Note why a request is sent again, and what the reply cost, as far as it says."""
    if (troubles := TROUBLES.get(None)) is None:
        return
    troubles.last = reason
    with suppress(ValueError, TypeError, AttributeError):
        usage = parse(content).usage
        tokens = (usage.prompt_tokens, usage.completion_tokens)
        troubles.bill(*(max(0, int(n or 0)) for n in tokens))


def waits_s(headers: Mapping[str, str]) -> float:
    """How long a server says to wait before anything is sent again: seconds, or a date.

    >>> waits_s({"retry-after": "2"}), waits_s({"retry-after-ms": "30"}), waits_s({})
    (2.0, 0.03, 0.0)
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        with suppress(ValueError):
            seconds = float(text) * unit_s
            return seconds if 0 < seconds < math.inf else 0.0
        with suppress(ValueError):
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return 0.0


def exhausted_s(headers: Mapping[str, str]) -> float:
    """How long nothing is left of a quota of requests or tokens, as the headers of an answer say.

    >>> exhausted_s({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m2s"})
    62.0
    >>> exhausted_s({"x-ratelimit-remaining-tokens": "90", "x-ratelimit-reset-tokens": "1s"})
    0.0
    """
    waits = [0.0]
    for quota in ("requests", "tokens"):
        if headers.get(f"x-ratelimit-remaining-{quota}") == "0":
            found = _DURATION.findall(headers.get(f"x-ratelimit-reset-{quota}", ""))
            waits.append(sum(float(number) * _UNITS_S[unit] for number, unit in found))
    return max(waits)

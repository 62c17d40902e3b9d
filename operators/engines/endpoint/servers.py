"""The servers of a model: a request goes to one that is free, and leaves one that fails.

Those of a pool have the same model, by their own account. One that turns a request away, or fails,
rests; one that fails again and again, or stays silent, is lost until it names its model again. A
single server neither rests nor is lost: the client above (`openai`) waits and asks it again.
"""

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from factsweep.operators.engines.endpoint.openai_client import key
from factsweep.operators.engines.endpoint.rate_limited_http import RETRIES, ConcurrencyLimit
from factsweep.operators.engines.endpoint.response_parsing import Reply, parse
from factsweep.operators.engines.protocol import Endpoint
from factsweep.operators.errors import InputError
from factsweep.operators.wording import first_of

_LOOK_S = 0.1  # between two looks for a free server
_ANSWER_S = 5.0  # for the name of a model
_REST_S, _MOST_REST_S, _MOST_ORDERED_S = 0.5, 8.0, 60.0  # at first, at most, and as a server says
_MOST_FAILURES = 3  # in a row, before a server is lost
_SILENT_S, _MOST_SILENT_S = 4.0, 600.0  # of a lost server, which grows with each loss
_IDENTITY = ("root", "max_model_len", "meta")  # fields of vLLM, SGLang and llama.cpp


@dataclass(eq=False)
class Server:
    """A server: how many requests it takes, and how it fares. Times are of a monotonic clock."""

    url: str
    limit: ConcurrencyLimit
    n_running: int = 0
    is_lost: bool = False
    rests_until: float = -math.inf
    answered_at: float = -math.inf
    failed_at: float = -math.inf
    n_failures: int = 0  # in a row
    n_losses: int = 0  # likewise
    watch: "asyncio.Task[None] | None" = None
    identity: dict[str, Any] | None = None  # what it says of its model, when it last did

    def note_life(self) -> None:
        """Note that it has replied, be it that a prompt is wrong."""
        self.answered_at, self.n_failures, self.n_losses = time.monotonic(), 0, 0


class Servers:
    """All servers of an endpoint, with the model of each."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self.endpoint, self.is_pool = endpoint, len(endpoint.urls) > 1
        self._model, self._key = model, key(endpoint.key)
        self._path = "/chat/completions" if endpoint.chat else "/completions"
        self.all = [Server(url.rstrip("/"), self._new_limit()) for url in endpoint.urls]
        self.faults: SimpleQueue[str] = SimpleQueue()  # the reason of each failed call
        self.refusal: InputError | None = None  # of a server that came back with another model

    @property
    def lost(self) -> list[Server]:
        """The servers that do not answer."""
        return [server for server in self.all if server.is_lost]

    @property
    def allowed(self) -> int:
        """How many requests may be under way together."""
        if not self.is_pool:
            return self.all[0].limit.allowed
        most = (0 if server.is_lost else server.limit.allowed for server in self.all)
        return max(1, sum(max(s.n_running, n) for s, n in zip(self.all, most, strict=True)))

    def feed(self, is_fed: bool) -> None:
        """Note whether more requests are waiting."""
        for server in self.all:
            server.limit.is_fed = is_fed

    async def begin(self) -> None:
        """Begin with the servers that answer; the others are lost, for now.

        Raises:
            InputError: they have different models.
        """
        for server in await self.find_silent():
            self._lose(server)

    async def find_silent(self) -> list[Server]:
        """Ask the servers of a pool which model they have; returns the silent ones.

        Raises:
            InputError: they have different models.
        """
        members = self.all if self.is_pool else []
        answers = await asyncio.gather(*map(self._has_same_model, members))
        return [server for server, answer in zip(members, answers, strict=True) if not answer]

    async def close(self) -> None:
        """Watch no server any more."""
        watches = [server.watch for server in self.all if server.watch is not None]
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    @asynccontextmanager
    async def slot(self, request: Any) -> AsyncIterator[Server]:
        """A server for a request, which is addressed to it, as soon as one is free."""
        while (server := self._find_free()) is None:
            since = time.monotonic()
            await asyncio.sleep(_LOOK_S)
            self._stop_clock(time.monotonic() - since)
        if self.is_pool:
            request.url = type(request.url)(server.url + self._path)
            request.headers["Host"] = request.url.netloc.decode("ascii")
        server.n_running += 1
        try:
            yield server
        finally:
            server.n_running -= 1

    def note_failure(
        self, server: Server, sent: float, *, headers: Any = None, is_late: bool = False
    ) -> None:
        """Let a server of a pool rest after a failure, and lose it after several in a row.

        Failures of requests that were `sent` before the last one count once. `headers` are those of
        a refusal: the request goes on to another server at once.
        """
        if not self.is_pool or server.is_lost:
            return
        time_s, is_silent = time.monotonic(), server.answered_at < sent
        if sent > server.failed_at:
            server.failed_at, server.n_failures = time_s, server.n_failures + 1
        rest_s = min(_MOST_REST_S, _REST_S * 2.0 ** (server.n_failures - 1))
        if headers is not None:
            rest_s = _ordered_rest(headers, rest_s)
            headers["retry-after-ms"] = "1"
        if headers is not None or is_silent:
            server.rests_until = max(server.rests_until, time_s + rest_s)
        if headers is None and is_silent and (is_late or server.n_failures >= _MOST_FAILURES):
            self._lose(server)

    def _new_limit(self, **state: Any) -> ConcurrencyLimit:
        return ConcurrencyLimit(max=self.endpoint.max_concurrent, **state)

    def _find_free(self) -> Server | None:
        if not self.is_pool:
            return self.all[0]
        time_s = time.monotonic()
        free = (s for s in self.all if not s.is_lost and s.rests_until <= time_s)
        room = {server: server.limit.allowed - server.n_running for server in free}
        server = max(room, key=lambda server: room[server], default=None)
        return server if server is not None and room[server] > 0 else None

    def _stop_clock(self, seconds: float) -> None:
        """Let a request wait longer if it waits for servers that are busy with others."""
        patience, since = RETRIES.get().patience, time.monotonic() - self.endpoint.give_up_s
        is_busy = any(not s.is_lost and s.answered_at > since for s in self.all)
        if is_busy and patience is not None and (when := patience.when()) is not None:
            patience.reschedule(when + seconds)

    def _lose(self, server: Server) -> None:
        server.is_lost, server.n_losses = True, server.n_losses + 1
        sys.stderr.write(f"{server.url} does not answer; its prompts go to the other servers.\n")
        server.watch = asyncio.create_task(self._watch(server))

    async def _watch(self, server: Server) -> None:
        """Ask a lost server for its model now and then; when it answers, it gets one prompt."""
        silent_s = min(_MOST_SILENT_S, _SILENT_S ** min(server.n_losses, 5))
        try:
            await asyncio.sleep(silent_s)
            while not await self._has_same_model(server):
                await asyncio.sleep(_SILENT_S)
        except InputError as error:
            self.refusal = error
            return
        server.limit = self._new_limit(allowed=1)
        server.is_lost, server.n_failures, server.rests_until = False, 0, -math.inf
        sys.stderr.write(f"{server.url} answers again.\n")

    async def _has_same_model(self, server: Server) -> bool:
        identity = await read_identity(server.url, self._model, self._key)
        other = next((s for s in self.all if s.identity and s is not server), server)
        expected = other.identity
        if identity and expected and identity != expected:
            name = next(n for n in identity | expected if identity.get(n) != expected.get(n))
            raise InputError(
                f"the servers of model.endpoint.urls have different models: {other.url} has {name}="
                f"{expected.get(name)} and {server.url} has {name}={identity.get(name)}; start the "
                "same model, in the same version, on all of them."
            )
        server.identity = identity or server.identity
        return identity is not None


def _ordered_rest(headers: Any, default_s: float) -> float:
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with suppress(ValueError):
            return max(_LOOK_S, min(_MOST_ORDERED_S, float(headers.get(name, "")) * unit))
    return default_s


async def read_identity(url: str, model: str, secret: str) -> dict[str, Any] | None:
    """A server's account of a model and of itself, as far as it gives any.

    Null if it does not answer.

    Raises:
        InputError: it has several models, and not this one.
    """
    import httpx2

    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    async with httpx2.AsyncClient(timeout=_ANSWER_S, headers=headers) as client:
        try:
            replies = [await client.get(f"{url}/models")]
            replies += [await client.get(f"{url.rpartition('/')[0]}/version")]
        except httpx2.HTTPError:
            return None
    if replies[0].status_code in (408, 429) or replies[0].status_code >= 500:
        return None
    models, version = (_parse(reply) for reply in replies)
    listed = models.data if isinstance(models.data, list) else []
    entries = {str(entry.id): entry for entry in listed if isinstance(entry, Reply)}
    if len(entries) > 1 and model not in entries:
        raise InputError(
            f"{url} has {first_of([*entries])}, and not {model}; give one of them as "
            "model.id, or correct model.endpoint.urls."
        )
    entry = entries.get(model, next(iter(entries.values()), Reply()))
    identity = {name: entry[name] for name in _IDENTITY if entry.get(name) is not None}
    return identity | ({"version": version.version} if version.version else {})


def _parse(response: Any) -> Reply:
    with suppress(ValueError):
        return parse(response.content) if response.status_code == 200 else Reply()
    return Reply()


def check_servers(endpoint: Endpoint, model: str) -> list[str]:
    """Ask the servers of a pool which model they have; returns the silent ones.

    Raises:
        InputError: they have different models.
    """
    silent = Servers(endpoint, model).find_silent()
    with ThreadPoolExecutor(1) as thread:  # a notebook has a loop in this one
        return [server.url for server in thread.submit(asyncio.run, silent).result()]

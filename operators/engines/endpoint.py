"""A model behind an endpoint as an engine: any server that speaks OpenAI's protocol.

Many requests are under way at once; how many is learned (`Limit`). The client (`openai`) sends a
request again after what passes by itself. What does not (no such model, no credit, a wrong key)
ends the run with one sentence; what is wrong with a prompt alone makes it a row with the reason.
"""

import asyncio
import math
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from itertools import chain
from queue import SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from operators.engines import next_tokens, node_reader, prompt_scores
from operators.engines.kind import NOT_INSTALLED, EngineKind, Start, installed
from operators.engines.limit import Limit
from operators.engines.next_tokens import NextRequest, NextSaid
from operators.engines.openai_client import key, refusal, without
from operators.engines.preference import Preferred, PreferRequest
from operators.engines.protocol import (
    Answer,
    Refused,
    Request,
    Scored,
    ScoreRequest,
)
from operators.engines.replies import NoAnswerError, Replies, Usage
from operators.engines.watched_http import NO_CREDIT, watched
from operators.errors import InputError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

T = TypeVar("T")
_Request = Request | ScoreRequest | NextRequest
Asked = TypeVar("Asked", bound=_Request)

_FILTERED = re.compile(r"content[_ ]filter|content management policy|ResponsibleAI", re.IGNORECASE)
_TOO_LONG = re.compile(r"context_length_exceeded|maximum context length", re.IGNORECASE)
_OPTIONAL = ("logprobs", "seed")  # what a request may do without, where a server does not know it
_TRIES = 1_000  # of a request; `give_up_s` ends it long before
_PROBE = "The capital of France is"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_CLOZES_AT_ONCE = 16  # whose tries are read together: a search asks for few nodes at a time


class EndpointEngine:
    """Asks a server; whatever is said of a prompt is yielded as soon as it is there."""

    is_paid = True  # what is under way is waited for, and kept soon

    def __init__(self, start: Start) -> None:
        assert start.endpoint is not None, "settings see to it"
        self._start, self._endpoint = start, start.endpoint
        self._key = key(start.endpoint.key)
        self._replies = Replies.of(start)
        self._limit = Limit(max=start.endpoint.max_concurrent)
        self._left_out: set[str] = set()
        self._is_scorer = False
        self._max_tokens = "max_tokens"
        self._answered_at, self._is_dead = -math.inf, False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer | Refused]:
        """One answer for each request, or why there is none, in the order they are finished.

        Raises:
            InputError: the server answers nothing, whatever it is asked.
        """
        yield from self._each(requests, self._answer)

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored | Refused]:
        """One score for each text, in the order they are finished; or why there is none.

        Raises:
            InputError: the server gives no log-probabilities of texts, which the first two tokens
                of one show before any is paid for; or it answers nothing.
        """
        waiting = iter(requests)
        if (first := next(waiting, None)) is None:
            return
        self._check_scores(first, "given texts")
        yield from self._each(chain([first], waiting), self._answer)

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[Preferred]:
        """One answer for each request, in the order in which they are found.

        Every node of a trie is a request of its own, with the tokens that may follow.

        Raises:
            InputError: the server gives no log-probabilities of given tokens, which two tokens of a
                text show before others are paid for; or it does not answer.
        """
        yield from node_reader.preferences(requests, self._said_behind, n_at_once=_CLOZES_AT_ONCE)

    def _said_behind(self, asked: Sequence[node_reader.Asked]) -> list[dict[int, float]]:
        """The log-probability of each token that is asked for behind a text."""
        jobs = [
            NextRequest(str(number), text, tokens[start : start + next_tokens.MOST])
            for number, (text, tokens) in enumerate(asked)
            for start in range(0, len(tokens), next_tokens.MOST)
        ]
        if jobs:
            self._check_scores(jobs[0], "given tokens")
        found: list[dict[int, float]] = [{} for _ in asked]
        for said in self._each(jobs, self._answer):
            if isinstance(said, Refused):
                raise self._refusal(f"{said.reason}: {said.detail}")
            found[int(said.request_id)].update(said.logprobs)
        return found

    def _check_scores(self, request: ScoreRequest | NextRequest, what: str) -> None:
        """Ask once, for little, whether the server gives scores at all."""
        if not self._is_scorer:
            checked = self._check_scorer(request, what)
            asyncio.run_coroutine_threadsafe(checked, self._loop).result()
            self._is_scorer = True

    async def _check_scorer(self, request: ScoreRequest | NextRequest, what: str) -> None:
        """Refuse a server that gives no scores.

        Raises:
            InputError: it says what the server said.
        """
        from openai import BadRequestError, OpenAIError, UnprocessableEntityError

        try:
            async with asyncio.timeout(self._endpoint.give_up_s):
                await self._asked(_probe(request))
        except (BadRequestError, UnprocessableEntityError, NoAnswerError) as error:
            raise InputError(
                f"model {self._start.model} at {self._endpoint.url} gives no log-probabilities of "
                f"{what} ({self._said_of(error)}), which this benchmark asks for; ask a "
                "server that does, such as vLLM's, or a model that is loaded here."
            ) from None
        except (OpenAIError, TimeoutError, ValueError) as error:
            raise self._refusal(self._said_of(error)) from None

    def _said_of(self, error: Exception) -> str:
        """What went wrong, without the key."""
        return without(self._key, getattr(error, "message", error)) or type(error).__name__

    def close(self) -> None:
        """Hang up."""
        if self._loop.is_running():
            if "_client" in self.__dict__:
                asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _each(self, requests: Iterable[Asked], ask: Callable[[Asked], Awaitable[T]]) -> Iterator[T]:
        """Ask for each request, as many at once as are allowed.

        Where one ends the run, those that are under way are waited for: they are paid for.
        """
        waiting, more, fatal = iter(requests), True, list[InputError]()
        done, running = SimpleQueue[Future[T]](), set[Future[T]]()
        self._limit.is_fed = True
        try:
            while more or running:
                while more and len(running) < self._limit.allowed:
                    request = next(waiting, None)
                    if request is None:
                        more = self._limit.is_fed = False
                        break
                    future = asyncio.run_coroutine_threadsafe(_awaited(ask(request)), self._loop)
                    running.add(future)
                    future.add_done_callback(done.put)
                if running:
                    future = done.get()
                    running.remove(future)
                    try:
                        answer = future.result()
                    except InputError as error:
                        more, fatal = False, [*fatal, error]
                    else:
                        yield answer
        finally:
            for future in running:
                future.cancel()
        if fatal:
            raise fatal[0]

    async def _answer(self, request: _Request) -> Any:
        from openai import OpenAIError

        began = time.monotonic()
        try:
            async with asyncio.timeout(self._endpoint.give_up_s):
                answer = await self._asked(request)
        except (OpenAIError, TimeoutError, ValueError, NoAnswerError) as error:
            return await self._explained(request, error, began)
        self._answered_at = time.monotonic()
        return answer

    async def _asked(self, request: _Request) -> Answer | Scored | NextSaid:
        """The answer of the server.

        Raises:
            NoAnswerError: it is none.
        """
        if isinstance(request, Request):
            said = await self._said(request)
            return self._replies.answer(request, said, self._left_out)
        model = self._start.model
        if isinstance(request, ScoreRequest):
            said = await self._create(prompt_scores.parameters(model, request))
        else:
            more = next_tokens.further(request)
            said = await self._create(next_tokens.parameters(model, request), more)
        usage = self._replies.usage(request, said)
        served = self._replies.served(said, usage)
        try:
            if isinstance(request, NextRequest):
                known = next_tokens.said(request, said)
                return NextSaid(request.request_id, known, usage.prompt, usage.output)
            found = prompt_scores.scored(request, said)
        except ValueError as error:
            raise NoAnswerError("no_scores", str(error), usage) from error
        return replace(
            found,
            n_prompt_tokens=usage.prompt,
            n_cached_tokens=usage.cached,
            n_output_tokens=usage.output,
            served=served,
        )

    async def _said(self, request: Request) -> Any:
        """What the server says, asked without what it does not know."""
        from openai import BadRequestError, UnprocessableEntityError

        while True:
            asked = self._parameters(request)
            try:
                return await self._create(asked)
            except (BadRequestError, UnprocessableEntityError) as error:
                if not self._can_do_without(str(error), asked):
                    raise

    async def _create(self, asked: Mapping[str, Any], more: Mapping[str, Any] = _NOTHING) -> Any:
        client, extra = self._client, {**self._start.arguments, **more}
        of = client.chat.completions if self._endpoint.chat else client.completions
        return await of.create(**asked, extra_body=extra)

    def _parameters(self, request: Request) -> dict[str, Any]:
        """What is asked; nothing that says what a server does anyway."""
        sampling = request.sampling
        asked: dict[str, Any] = {
            "model": self._start.model,
            self._max_tokens: sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        if self._endpoint.chat:
            asked["messages"] = request.turns or [{"role": "user", "content": request.text}]
        else:
            asked["prompt"] = request.text
        if sampling.stop:
            asked["stop"] = list(sampling.stop)
        if sampling.n > 1:
            asked["n"] = sampling.n
        if sampling.top_p < 1:
            asked["top_p"] = sampling.top_p
        if sampling.logprobs:
            asked["logprobs"] = True if self._endpoint.chat else 1
        if request.seed is not None:
            asked["seed"] = request.seed
        return {name: value for name, value in asked.items() if name not in self._left_out}

    def _can_do_without(self, said: str, asked: Mapping[str, Any]) -> bool:
        """Whether what the server does not take can be left out, or has another name."""
        if "max_completion_tokens" in said and "max_tokens" in asked:
            self._max_tokens = "max_completion_tokens"
            return True
        for name in _OPTIONAL:
            if name in asked and re.search(rf"\b{name}\b", said):
                if name not in self._left_out:
                    self._left_out.add(name)
                    sys.stderr.write(f"{self._start.model} takes no {name}: none are asked for.\n")
                return True
        return False

    async def _explained(self, request: _Request, error: Exception, began: float) -> Refused:
        """Why a prompt has no answer, if that is about the prompt.

        Raises:
            InputError: it is about the server, or about who asks.
        """
        from openai import APIStatusError

        said, usage = self._said_of(error), Usage(0, 0)
        if isinstance(error, NoAnswerError):
            usage, reason = error.usage, error.reason
            if reason != "other_model":
                return Refused(request.request_id, reason, said, usage.prompt, usage.output)
        elif isinstance(error, APIStatusError):
            status, whole = error.status_code, f"{error.code} {error.body} {error}"
            if status in (401, 402, 403, 404) or (status == 429 and NO_CREDIT.search(whole)):
                raise self._refusal(said) from None
            reason = _reason(status, whole)
            if reason in ("content_filter", "prompt_too_long"):
                return Refused(request.request_id, reason, said)
        else:
            reason = "endpoint_failed"
        usage += await self._probed(request, said, since=_since(reason, began))
        return Refused(request.request_id, reason, said, usage.prompt, usage.output)

    async def _probed(self, request: _Request, said: str, since: float) -> Usage:
        """Tell a bad prompt from a server that answers nobody; returns what that took.

        Raises:
            InputError: it answers nothing.
        """
        from openai import OpenAIError

        async with self._probing:
            if self._answered_at >= since:
                return Usage(0, 0)
            if self._is_dead:
                raise self._refusal(said) from None
            self._is_dead = True  # unless the probe is answered
            try:
                async with asyncio.timeout(self._endpoint.give_up_s):
                    answer = await self._asked(_probe(request))
            except NoAnswerError as error:
                if error.reason != "other_model":
                    self._is_dead = False
                    return error.usage
                raise self._refusal(said) from None
            except (OpenAIError, TimeoutError, ValueError):
                raise self._refusal(said) from None
            self._answered_at, self._is_dead = time.monotonic(), False
            return Usage(answer.n_prompt_tokens, answer.n_output_tokens or 0)

    def _refusal(self, said: str) -> InputError:
        return refusal(self._start.model, self._endpoint.url, said)

    @cached_property
    def _probing(self) -> asyncio.Lock:
        return asyncio.Lock()

    @cached_property
    def _client(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        return AsyncOpenAI(
            base_url=self._endpoint.url,
            api_key=self._key or "none",  # a server of one's own may need none
            timeout=self._endpoint.timeout_s,
            max_retries=_TRIES,
            http_client=watched(self._limit, self._endpoint.timeout_s),
        )


def _probe(request: _Request) -> _Request:
    """Another prompt, or the beginning of a text, that is asked for in the same way."""
    if isinstance(request, Request):
        return replace(request, request_id="", text=_PROBE, turns=())
    if isinstance(request, NextRequest):
        return replace(request, token_ids=request.token_ids[:2], tokens=request.tokens[:1])
    return replace(request, request_id="", token_ids=request.token_ids[:2], span=(0, 0))


async def _awaited(answer: Awaitable[T]) -> T:
    return await answer


def _since(reason: str, began: float) -> float:
    """From when on an answer shows that a server is not to blame."""
    return began if reason == "endpoint_failed" else 0.0


def _reason(status: int, said: str) -> str:
    """What a status means for a prompt."""
    if status == 429 or status >= 500 or status in (408, 409):
        return "endpoint_failed"
    if _FILTERED.search(said):
        return "content_filter"
    return "prompt_too_long" if _TOO_LONG.search(said) else "bad_request"


KIND = EngineKind(
    name="endpoint",
    version=lambda: NOT_INSTALLED if installed("openai") == NOT_INSTALLED else "endpoint 1",
    load=EndpointEngine,
    abilities=frozenset({"generate", "score", "prefer"}),
    install="install it with pip install openai",
    gpus="none",
    arguments=lambda: None,
    fields={
        "model": "model.id",
        "prompt": "prompt",
        "messages": "prompt",
        "max_tokens": "decoding.max_tokens",
        "max_completion_tokens": "decoding.max_tokens",
        "stop": "decoding.stop",
        "n": "decoding.samples.block_size",
        "temperature": "decoding.samples.temperature",
        "top_p": "decoding.samples.top_p",
        "seed": "seed",
    },
)

"""A model behind an endpoint as an engine: any server that speaks OpenAI's protocol.

Many requests are under way at once; how many is learned (`Limit`). The client (`openai`) sends a
request again after what passes by itself. What does not (no such model, no credit, a wrong key)
ends the run with one sentence; what is wrong with a prompt alone makes it a row with the reason.
"""

import asyncio
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from factsweep.operators.engines import node_reader
from factsweep.operators.engines.endpoint import given_tokens
from factsweep.operators.engines.endpoint.blame import AnyRequest, Blame, probe
from factsweep.operators.engines.endpoint.given_tokens import NextRequest, NextSaid
from factsweep.operators.engines.endpoint.limit import Limit
from factsweep.operators.engines.endpoint.openai_client import key
from factsweep.operators.engines.endpoint.replies import ANY, NoAnswerError, Replies
from factsweep.operators.engines.endpoint.watched_http import BILLED, Faults, watched
from factsweep.operators.engines.kind import NOT_INSTALLED, EngineKind, Start, installed
from factsweep.operators.engines.preference import Preferred, PreferRequest
from factsweep.operators.engines.protocol import Answer, Refused, Request, Scored, ScoreRequest
from factsweep.operators.errors import InputError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_TRIES = 1_000  # of a request; `give_up_s` ends it long before
_OPTIONAL = ("logprobs", "seed")  # what a request may do without, where a server does not know it


class EndpointEngine:
    """Asks a server; whatever is said of a prompt is yielded as soon as it is there."""

    is_paid = True  # what is under way is waited for, and kept soon

    def __init__(self, start: Start) -> None:
        assert start.endpoint is not None, "settings see to it"
        self._start, self._endpoint = start, start.endpoint
        self._key = key(start.endpoint.key)
        self._replies = Replies(start.model, start.revision or ANY, start.endpoint.chat)
        self._limit, self._faults = Limit(max=start.endpoint.max_concurrent), Faults()
        self._dialect = _Dialect(start.model, chat=start.endpoint.chat)
        self._blame = Blame(start, self._key, self._asked_in_time)
        self._is_scorer = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer | Refused]:
        """One answer for each request, or why there is none, in the order they are finished.

        Raises:
            InputError: the server answers nothing, whatever it is asked.
        """
        yield from self._each(requests)

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
        yield from self._each(chain([first], waiting))

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[Preferred]:
        """One answer for each request, in the order in which they are found.

        Every node of a trie is a request of its own, with the tokens that may follow.

        Raises:
            InputError: the server gives no log-probabilities of given tokens, which two tokens of a
                text show before others are paid for; or it does not answer.
        """
        yield from node_reader.preferences(requests, self._said_behind)

    def _said_behind(self, asked: Sequence[node_reader.Asked]) -> list[dict[int, float]]:
        """The log-probability of each token that is asked for behind a text."""
        jobs = [NextRequest(str(n), text, part) for n, text, part in node_reader.in_parts(asked)]
        if jobs:
            self._check_scores(jobs[0], "given tokens")
        found: list[dict[int, float]] = [{} for _ in asked]
        for said in self._each(jobs):
            if isinstance(said, Refused):
                raise self._blame.refusal(f"{said.reason}: {said.detail}")
            found[int(said.request_id)].update(said.logprobs)
        return found

    def _check_scores(self, request: ScoreRequest | NextRequest, what: str) -> None:
        """Ask once, for little, whether the server gives scores at all.

        Raises:
            InputError: it gives none, and what it said.
        """
        from openai import BadRequestError, OpenAIError, UnprocessableEntityError

        if self._is_scorer:
            return
        try:
            little = self._asked_in_time(probe(request))
            asyncio.run_coroutine_threadsafe(little, self._loop).result()
        except (BadRequestError, UnprocessableEntityError, NoAnswerError) as error:
            raise InputError(
                f"model {self._start.model} at {self._endpoint.url} gives no log-probabilities of "
                f"{what} ({self._blame.said(error)}), which this benchmark asks for; ask a "
                "server that does, such as vLLM's, or a model that is loaded here."
            ) from None
        except (OpenAIError, TimeoutError, ValueError) as error:
            raise self._blame.refusal(self._blame.said(error)) from None
        self._is_scorer = True

    def faults(self) -> dict[str, float]:
        """How many calls were turned away, timed out or failed since the last time, by which."""
        return self._faults.take()

    def close(self) -> None:
        """Hang up."""
        if self._loop.is_running():
            if "_client" in self.__dict__:
                asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _each(self, requests: Iterable[AnyRequest]) -> Iterator[Any]:
        """What is said of each request, as many at once as are allowed.

        Where one ends the run, those that are under way are waited for: they are paid for.
        """
        waiting, more, fatal = iter(requests), True, list[InputError]()
        done, running = SimpleQueue[Future[Any]](), set[Future[Any]]()
        self._limit.is_fed = True
        try:
            while more or running:
                while more and len(running) < self._limit.allowed:
                    request = next(waiting, None)
                    if request is None:
                        more = self._limit.is_fed = False
                        break
                    future = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
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

    async def _answer(self, request: AnyRequest) -> Any:
        """What is said of a request, with the tokens of all replies to it."""
        billed = Counter[str]()
        BILLED.set(billed)
        found = await self._said_of(request)
        return replace(
            found,
            n_prompt_tokens=found.n_prompt_tokens + billed["prompt_tokens"],
            n_output_tokens=(found.n_output_tokens or 0) + billed["completion_tokens"],
        )

    async def _said_of(self, request: AnyRequest) -> Answer | Scored | NextSaid | Refused:
        from openai import OpenAIError

        began = time.monotonic()
        try:
            answer = await self._asked_in_time(request)
        except (OpenAIError, TimeoutError, ValueError, NoAnswerError) as error:
            return await self._blame.explained(request, error, began)
        self._blame.clear()
        return answer

    async def _asked_in_time(self, request: AnyRequest) -> Answer | Scored | NextSaid:
        async with asyncio.timeout(self._endpoint.give_up_s):
            return await self._asked(request)

    async def _asked(self, request: AnyRequest) -> Answer | Scored | NextSaid:
        """The answer of the server.

        Raises:
            NoAnswerError: it is none.
        """
        if isinstance(request, Request):
            said = await self._said(request)
            return self._replies.answer(request, said, self._dialect.left_out)
        said = await self._create(given_tokens.parameters(self._start.model, request))
        usage = self._replies.usage(request, said)
        served = self._replies.served(said, usage)
        try:
            return given_tokens.read(request, said, usage, served)
        except ValueError as error:
            raise NoAnswerError("no_scores", str(error), usage) from error

    async def _said(self, request: Request) -> Any:
        """What the server says, asked without what it does not know."""
        from openai import BadRequestError, UnprocessableEntityError

        while True:
            asked = self._dialect.parameters(request)
            try:
                return await self._create(asked)
            except (BadRequestError, UnprocessableEntityError) as error:
                if not self._dialect.learns(str(error), asked):
                    raise

    async def _create(self, asked: Mapping[str, Any]) -> Any:
        client, extra = self._client, {**self._start.arguments, **asked.get("extra_body", {})}
        of = client.chat.completions if self._endpoint.chat else client.completions
        return await of.create(**{**asked, "extra_body": extra})

    @cached_property
    def _client(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        return AsyncOpenAI(
            base_url=self._endpoint.url,
            api_key=self._key or "none",  # a server of one's own may need none
            timeout=self._endpoint.timeout_s,
            max_retries=_TRIES,
            http_client=watched(self._limit, self._faults, self._endpoint.timeout_s),
        )


class _Dialect:
    """How a server is asked for answers, learned as it refuses; `chat`: by messages."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self.left_out: set[str] = set()
        self._model, self._chat = model, chat
        self._max_tokens = "max_tokens"

    def parameters(self, request: Request) -> dict[str, Any]:
        """What is asked; nothing that says what a server does anyway."""
        sampling = request.sampling
        asked: dict[str, Any] = {
            "model": self._model,
            self._max_tokens: request.most_output_tokens // sampling.n,
            "temperature": sampling.temperature,
        }
        if self._chat:
            asked["messages"] = request.turns or [{"role": "user", "content": request.text}]
        else:
            asked["prompt"] = request.text
        if sampling.stop and request.thinking is None:  # else it would end a thought
            asked["stop"] = list(sampling.stop)
        if sampling.n > 1:
            asked["n"] = sampling.n
        if sampling.top_p < 1:
            asked["top_p"] = sampling.top_p
        if sampling.logprobs:
            asked["logprobs"] = True if self._chat else 1
        if request.seed is not None:
            asked["seed"] = request.seed
        return {name: value for name, value in asked.items() if name not in self.left_out}

    def learns(self, said: str, asked: Mapping[str, Any]) -> bool:
        """Whether what the server does not take can be left out, or has another name."""
        if "max_completion_tokens" in said and "max_tokens" in asked:
            self._max_tokens = "max_completion_tokens"
            return True
        for name in _OPTIONAL:
            if name in asked and re.search(rf"\b{name}\b", said):
                if name not in self.left_out:
                    self.left_out.add(name)
                    sys.stderr.write(f"{self._model} takes no {name}: none are asked for.\n")
                return True
        return False


KIND = EngineKind(
    name="endpoint",
    version=lambda: NOT_INSTALLED if installed("openai") == NOT_INSTALLED else "endpoint 1",
    load=EndpointEngine,
    abilities=frozenset({"generate", "score", "prefer"}),
    install="install it with pip install openai",
    gpus="none",
    computes=False,
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

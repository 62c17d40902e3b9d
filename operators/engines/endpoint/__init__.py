"""A model behind an endpoint as an engine: any server that speaks OpenAI's protocol.

Many requests run at once; `ConcurrencyLimit` learns how many. The client (`openai`) retries
transient errors. Lasting errors (no such model, no credit, a wrong key) end the run with one
sentence; an error of one prompt becomes its row with the reason.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from factsweep.operators.engines.endpoint import response_parsing
from factsweep.operators.engines.endpoint.openai_client import key
from factsweep.operators.engines.endpoint.rate_limited_http import (
    RETRIES,
    Retries,
    rate_limited_client,
)
from factsweep.operators.engines.endpoint.request_parameters import (
    AnyRequest,
    Diagnosis,
    Dialect,
    NextLogprobs,
    NextRequest,
    probe,
    read_given_tokens,
)
from factsweep.operators.engines.endpoint.servers import Servers
from factsweep.operators.engines.preference import (
    Branch,
    BranchLogprobs,
    PreferenceResult,
    PreferRequest,
    join_branches,
    preferences,
    split_branches,
)
from factsweep.operators.engines.protocol import (
    NOT_INSTALLED,
    Answer,
    EngineKind,
    RefusedRequest,
    Request,
    Scored,
    ScoreRequest,
    Start,
    find_installed,
)
from factsweep.operators.errors import InputError, UnavailableError
from factsweep.operators.wording import name_servers

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MAX_RETRIES = 1_000  # of a request; `give_up_s` ends it long before


class EndpointEngine:
    """Asks a server; each answer is yielded as soon as it arrives."""

    is_paid = True  # answers of requests under way are waited for, and stored soon

    def __init__(self, start: Start) -> None:
        assert start.endpoint is not None, "settings see to it"
        self._start, self._endpoint = start, start.endpoint
        self._key = key(start.endpoint.key)
        self._replies = response_parsing.Replies(
            start.model, start.revision or response_parsing.ANY, start.endpoint.chat
        )
        self._servers = Servers(start.endpoint, start.model)
        self._n_down = 0  # servers, as reported
        self._dialect = Dialect(start.model, chat=start.endpoint.chat)
        self._diagnosis = Diagnosis(start, self._key, self._ask)
        self._is_scorer = False
        self._first_sample = asyncio.Lock()  # one request shows how many samples the server gives
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._servers.begin(), self._loop).result()
            if len(self._servers.lost) == len(start.endpoint.urls):
                raise self._diagnosis.refusal("none of them answers", error=UnavailableError)
        except InputError:
            self.close()
            raise

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer | RefusedRequest]:
        """One answer for each request, or why there is none, in the order they are finished.

        Raises:
            InputError: the server answers no request.
        """
        yield from self._results(requests)

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored | RefusedRequest]:
        """One score for each text, in the order they are finished; or why there is none.

        Raises:
            InputError: the server gives no log-probabilities of texts, which the first two tokens
                of one show before any is paid for; or it answers no request.
        """
        waiting = iter(requests)
        for first in islice(waiting, 1):
            self._check_scores(first, "given texts")
            yield from self._results(chain([first], waiting))

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[PreferenceResult]:
        """One answer for each request, in the order in which they are finished.

        Raises:
            InputError: the server gives no log-probabilities of given tokens, which two tokens of a
                text show before others are paid for; or it does not answer.
        """
        yield from preferences(requests, self._read_branches)

    def _read_branches(self, branches: Sequence[Branch]) -> list[BranchLogprobs]:
        requests = [NextRequest(str(i), text, part) for i, text, part in split_branches(branches)]
        if requests:
            self._check_scores(requests[0], "given tokens")
        parts = []
        for result in self._results(requests):
            if isinstance(result, RefusedRequest):
                raise self._diagnosis.refusal(f"{result.reason}: {result.detail}")
            parts.append((int(result.request_id), result.logprobs))
        return join_branches(branches, parts)

    def _check_scores(self, request: ScoreRequest | NextRequest, content: str) -> None:
        from openai import BadRequestError, OpenAIError, UnprocessableEntityError

        if self._is_scorer:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._ask(probe(request)), self._loop).result()
        except (BadRequestError, UnprocessableEntityError, response_parsing.NoAnswerError) as error:
            raise InputError(
                f"model {self._start.model} at {name_servers(self._endpoint.urls)} gives no "
                f"log-probabilities of {content} ({self._diagnosis.message(error)}), which this "
                "benchmark needs; use a server that gives them, such as vLLM's, or a model that is "
                "loaded here."
            ) from None
        except (OpenAIError, TimeoutError, ValueError) as error:
            raise self._diagnosis.refusal(self._diagnosis.message(error)) from None
        self._is_scorer = True

    def faults(self) -> dict[str, float]:
        """How many calls were refused, timed out or failed since the last time, by reason."""
        queue, n_down = self._servers.faults, len(self._servers.lost)
        counts = Counter(queue.get() for _ in range(queue.qsize()))
        counts["down"], self._n_down = n_down - self._n_down, n_down
        return {reason: float(n) for reason, n in counts.items() if n}

    def close(self) -> None:
        """Close the connections, and end the thread."""
        if self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self._servers.close(), self._loop).result(10)
            if "_client" in self.__dict__:
                asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _results(self, requests: Iterable[AnyRequest]) -> Iterator[Any]:
        """The result of each request; when one ends the run, those under way are waited for."""
        waiting, has_more, fatal = iter(requests), True, list[InputError]()
        finished, running = SimpleQueue[Future[Any]](), set[Future[Any]]()
        self._servers.feed(True)
        try:
            while has_more or running:
                while has_more and len(running) < self._servers.allowed:
                    request = next(waiting, None)
                    if request is None:
                        has_more = False
                        self._servers.feed(False)
                        break
                    future = asyncio.run_coroutine_threadsafe(self._result(request), self._loop)
                    running.add(future)
                    future.add_done_callback(finished.put)
                if running:
                    future = finished.get()
                    running.remove(future)
                    try:
                        result = future.result()
                    except InputError as error:
                        has_more, fatal = False, [*fatal, error]
                    else:
                        yield result
                if self._servers.refusal is not None and has_more:
                    has_more, fatal = False, [*fatal, self._servers.refusal]
        finally:
            for future in running:
                future.cancel()
        if fatal:
            raise fatal[0]

    async def _result(self, request: AnyRequest) -> Any:
        """The answer to a request, or why there is none, with the tokens of all replies to it."""
        RETRIES.set(retries := Retries())
        result = None
        if not self._dialect.is_known_for(request):
            async with self._first_sample:
                if not self._dialect.is_known_for(request):  # no reply has shown it meanwhile
                    result = await self._answer_or_reason(request)
        if result is None:
            result = await self._answer_or_reason(request)
        return replace(
            result,
            n_prompt_tokens=result.n_prompt_tokens + retries.billed["prompt_tokens"],
            n_output_tokens=(result.n_output_tokens or 0) + retries.billed["completion_tokens"],
        )

    async def _answer_or_reason(
        self, request: AnyRequest
    ) -> Answer | Scored | NextLogprobs | RefusedRequest:
        from openai import OpenAIError

        began = time.monotonic()
        try:
            result = await self._ask(request)
        except (OpenAIError, TimeoutError, ValueError, response_parsing.NoAnswerError) as error:
            return await self._diagnosis.explain(request, error, began)
        self._diagnosis.note_answer()
        return result

    async def _ask(self, request: AnyRequest) -> Answer | Scored | NextLogprobs:
        if (retries := RETRIES.get(None)) is None:
            RETRIES.set(retries := Retries())
        give_up_s = self._endpoint.give_up_s
        _ = self._client  # its import takes seconds on a busy machine, which are not the server's
        try:
            async with asyncio.timeout(give_up_s) as retries.patience:
                if isinstance(request, Request):
                    return await self._all_samples(request)
                reply = await self._post(self._dialect.parameters(request))
        except TimeoutError as error:
            failure = f"; the last reply: {retries.last_failure}" if retries.last_failure else ""
            raise TimeoutError(f"no answer within {give_up_s:g} s{failure}") from error
        usage = self._replies.usage(request, reply)
        served = self._replies.check_served_model(reply, usage)
        try:
            return read_given_tokens(request, reply, usage, served)
        except ValueError as error:
            raise response_parsing.NoAnswerError("no_scores", str(error), usage) from error

    async def _all_samples(self, request: Request) -> Answer:
        """The answer, in as many requests as the server needs for its completions.

        Each has a seed of its own: vLLM draws completion i of a request with its seed + i.
        """
        answer = await self._some_samples(request)
        n = request.sampling.n
        while (n_done := len(answer.completions)) < n:
            RETRIES.get().bill(answer.n_prompt_tokens, answer.n_output_tokens or 0)
            sampling = replace(request.sampling, n=n - n_done)
            seed = None if request.seed is None else request.seed + n_done
            next_answer = await self._some_samples(replace(request, sampling=sampling, seed=seed))
            answer = replace(
                next_answer,
                completions=(*answer.completions, *next_answer.completions),
                n_cached_tokens=answer.n_cached_tokens + next_answer.n_cached_tokens,
                without=tuple(dict.fromkeys((*answer.without, *next_answer.without, "n"))),
                n_requests=answer.n_requests + 1,
                n_prompts_removed=answer.n_prompts_removed + next_answer.n_prompts_removed,
            )
        return answer

    async def _some_samples(self, request: Request) -> Answer:
        from openai import BadRequestError, InternalServerError, UnprocessableEntityError

        refusals = (BadRequestError, InternalServerError, UnprocessableEntityError)
        reply = None
        while reply is None:
            parameters = self._dialect.parameters(request)
            try:
                reply = await self._post(parameters)
            except refusals as error:
                if self._dialect.learn(f"{error} {error.body}", parameters):
                    continue
                if self._dialect.is_known_for(request):
                    raise
                parameters.pop("n", None)
                try:
                    reply = await self._post(parameters)
                except refusals:
                    raise error from None  # n was not the refused parameter
        part = replace(request, sampling=replace(request.sampling, n=parameters.get("n", 1)))
        answer = self._replies.answer(part, reply, self._dialect.left_out)
        self._dialect.note_samples(request.sampling.n, len(answer.completions))
        return answer

    async def _post(self, parameters: Mapping[str, Any]) -> response_parsing.Reply:
        import httpx2

        path = "/chat/completions" if self._endpoint.chat else "/completions"
        body = {**parameters, **self._start.arguments}
        response = await self._client.post(path, cast_to=httpx2.Response, body=body)
        return response_parsing.parse(response.content)

    @cached_property
    def _client(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        return AsyncOpenAI(
            base_url=self._endpoint.urls[0],
            api_key=self._key or "none",  # a server of one's own may need none
            timeout=self._endpoint.timeout_s,
            max_retries=_MAX_RETRIES,
            http_client=rate_limited_client(self._servers),
        )


KIND = EngineKind(
    name="endpoint",
    version=lambda: NOT_INSTALLED if find_installed("openai") == NOT_INSTALLED else "endpoint 1",
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

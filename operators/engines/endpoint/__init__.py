"""A model behind an endpoint as an engine: any server that speaks OpenAI's protocol.

Many requests are under way at once; how many is learned (`Limit`). The client (`openai`) sends a
request again after what passes by itself. What does not (no such model, no credit, a wrong key)
ends the run with one sentence; what is wrong with a prompt alone makes it a row with the reason.
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

from factsweep.operators.engines.endpoint.blame import Blame, probe
from factsweep.operators.engines.endpoint.dialect import (
    AnyRequest,
    Dialect,
    NextRequest,
    NextSaid,
    read_given_tokens,
)
from factsweep.operators.engines.endpoint.openai_client import key
from factsweep.operators.engines.endpoint.replies import ANY, NoAnswerError, Replies
from factsweep.operators.engines.endpoint.reply import Reply, parse
from factsweep.operators.engines.endpoint.watched_http import TROUBLES, Limit, Troubles, watched
from factsweep.operators.engines.kind import NOT_INSTALLED, EngineKind, Start, installed
from factsweep.operators.engines.preference import (
    Branch,
    BranchLogprobs,
    Preferred,
    PreferRequest,
    join_branches,
    preferences,
    split_branches,
)
from factsweep.operators.engines.protocol import Answer, Refused, Request, Scored, ScoreRequest
from factsweep.operators.errors import InputError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_TRIES = 1_000  # of a request; `give_up_s` ends it long before


class EndpointEngine:
    """Asks a server; whatever is said of a prompt is yielded as soon as it is there."""

    is_paid = True  # what is under way is waited for, and kept soon

    def __init__(self, start: Start) -> None:
        assert start.endpoint is not None, "settings see to it"
        self._start, self._endpoint = start, start.endpoint
        self._key = key(start.endpoint.key)
        self._replies = Replies(start.model, start.revision or ANY, start.endpoint.chat)
        self._limit = Limit(max=start.endpoint.max_concurrent)
        self._faults: SimpleQueue[str] = SimpleQueue()
        self._dialect = Dialect(start.model, chat=start.endpoint.chat)
        self._blame = Blame(start, self._key, self._asked_in_time)
        self._is_scorer = False
        self._first_sample = asyncio.Lock()  # one request shows how many samples it gives
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
        for first in islice(waiting, 1):
            self._check_scores(first, "given texts")
            yield from self._each(chain([first], waiting))

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[Preferred]:
        """One answer for each request, in the order in which they are found.

        Raises:
            InputError: the server gives no log-probabilities of given tokens, which two tokens of a
                text show before others are paid for; or it does not answer.
        """
        yield from preferences(requests, self._read_branches)

    def _read_branches(self, branches: Sequence[Branch]) -> list[BranchLogprobs]:
        jobs = [NextRequest(str(i), text, part) for i, text, part in split_branches(branches)]
        if jobs:
            self._check_scores(jobs[0], "given tokens")
        parts = []
        for answer in self._each(jobs):
            if isinstance(answer, Refused):
                raise self._blame.refusal(f"{answer.reason}: {answer.detail}")
            parts.append((int(answer.request_id), answer.logprobs))
        return join_branches(branches, parts)

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
        counts = Counter(self._faults.get() for _ in range(self._faults.qsize()))
        return {why: float(n) for why, n in counts.items()}

    def close(self) -> None:
        """Hang up."""
        if self._loop.is_running():
            if "_client" in self.__dict__:
                asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _each(self, requests: Iterable[AnyRequest]) -> Iterator[Any]:
        """What is said of each request; those under way when one ends the run are waited for."""
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
        troubles, answer = Troubles(), None
        TROUBLES.set(troubles)
        if not self._dialect.is_known_for(request):
            async with self._first_sample:
                if not self._dialect.is_known_for(request):
                    answer = await self._answer_or_reason(request)
        if answer is None:
            answer = await self._answer_or_reason(request)
        return replace(
            answer,
            n_prompt_tokens=answer.n_prompt_tokens + troubles.billed["prompt_tokens"],
            n_output_tokens=(answer.n_output_tokens or 0) + troubles.billed["completion_tokens"],
        )

    async def _answer_or_reason(self, request: AnyRequest) -> Answer | Scored | NextSaid | Refused:
        from openai import OpenAIError

        began = time.monotonic()
        try:
            answer = await self._asked_in_time(request)
        except (OpenAIError, TimeoutError, ValueError, NoAnswerError) as error:
            return await self._blame.explained(request, error, began)
        self._blame.clear()
        return answer

    async def _asked_in_time(self, request: AnyRequest) -> Answer | Scored | NextSaid:
        if (troubles := TROUBLES.get(None)) is None:
            TROUBLES.set(troubles := Troubles())
        give_up_s = self._endpoint.give_up_s
        _ = self._client  # importing `openai` takes seconds on a busy machine, none of the server's
        try:
            async with asyncio.timeout(give_up_s):
                return await self._asked(request)
        except TimeoutError as error:
            last = f"; the last reply: {troubles.last}" if troubles.last else ""
            raise TimeoutError(f"no answer within {give_up_s:g} s{last}") from error

    async def _asked(self, request: AnyRequest) -> Answer | Scored | NextSaid:
        """The answer of the server.

        Raises:
            NoAnswerError: the server's reply is none.
        """
        if isinstance(request, Request):
            return await self._all_samples(request)
        reply = await self._create(self._dialect.parameters(request))
        usage = self._replies.usage(request, reply)
        served = self._replies.served(reply, usage)
        try:
            return read_given_tokens(request, reply, usage, served)
        except ValueError as error:
            raise NoAnswerError("no_scores", str(error), usage) from error

    async def _all_samples(self, request: Request) -> Answer:
        """The answer, in as many requests as the server needs for its completions.

        Each has a seed of its own: vLLM draws completion i of a request with its seed + i.
        """
        answer = await self._some_samples(request)
        n = request.sampling.n
        while (n_done := len(answer.completions)) < n:
            TROUBLES.get().bill(answer.n_prompt_tokens, answer.n_output_tokens or 0)
            sampling = replace(request.sampling, n=n - n_done)
            seed = None if request.seed is None else request.seed + n_done
            rest = await self._some_samples(replace(request, sampling=sampling, seed=seed))
            answer = replace(
                rest,
                completions=(*answer.completions, *rest.completions),
                n_cached_tokens=answer.n_cached_tokens + rest.n_cached_tokens,
                without=tuple(dict.fromkeys((*answer.without, *rest.without, "n"))),
                n_requests=answer.n_requests + 1,
                n_prompts_removed=answer.n_prompts_removed + rest.n_prompts_removed,
            )
        return answer

    async def _some_samples(self, request: Request) -> Answer:
        """The answer of one request, without what the server refuses."""
        from openai import BadRequestError, InternalServerError, UnprocessableEntityError

        refusals = (BadRequestError, InternalServerError, UnprocessableEntityError)
        reply = None
        while reply is None:
            parameters = self._dialect.parameters(request)
            try:
                reply = await self._create(parameters)
            except refusals as error:
                if self._dialect.learns(f"{error} {error.body}", parameters):
                    continue
                if self._dialect.is_known_for(request):
                    raise
                parameters.pop("n", None)
                try:
                    reply = await self._create(parameters)
                except refusals:
                    raise error from None  # it was not n that is refused
        part = replace(request, sampling=replace(request.sampling, n=parameters.get("n", 1)))
        answer = self._replies.answer(part, reply, self._dialect.left_out)
        self._dialect.note_samples(request.sampling.n, len(answer.completions))
        return answer

    async def _create(self, parameters: Mapping[str, Any]) -> Reply:
        import httpx2

        path = "/chat/completions" if self._endpoint.chat else "/completions"
        body = {**parameters, **self._start.arguments}
        response = await self._client.post(path, cast_to=httpx2.Response, body=body)
        return parse(response.content)

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

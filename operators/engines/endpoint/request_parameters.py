"""Parameters of requests, learned as a server refuses some; log-probabilities of given tokens.

Those of a text come by `echo`; those behind one by `logprob_token_ids` of vLLM's own server. An
error of one prompt is its row; any other ends the run.
"""

import asyncio
import math
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from factsweep.operators.engines.endpoint.openai_client import FIX, hide_key, refusal
from factsweep.operators.engines.endpoint.rate_limited_http import NO_CREDIT, error_message
from factsweep.operators.engines.endpoint.response_parsing import (
    NoAnswerError,
    Reply,
    Usage,
    as_object,
)
from factsweep.operators.engines.protocol import (
    Answer,
    RefusedRequest,
    Request,
    Scored,
    ScoreRequest,
    Start,
)
from factsweep.operators.errors import InputError, UnavailableError
from factsweep.operators.wording import name_servers

_OPTIONAL = ("logprobs", "seed")  # left out where a server does not take them


@dataclass(frozen=True)
class NextRequest:
    """A text as token ids, and the tokens whose log-probabilities behind it are requested."""

    request_id: str
    token_ids: Sequence[int]
    tokens: Sequence[int]


@dataclass(frozen=True)
class NextLogprobs:
    """The log-probability of each requested token, and the cost."""

    request_id: str
    logprobs: dict[int, float]
    n_prompt_tokens: int
    n_output_tokens: int


AnyRequest = Request | ScoreRequest | NextRequest


class Dialect:
    """The parameters that a server takes, learned from its refusals; `chat`: it gets messages."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self.left_out: set[str] = set()
        self._model, self._chat = model, chat
        self._max_tokens = "max_tokens"
        self._max_samples: int | None = None  # per request; null: several were never requested

    def is_known_for(self, request: AnyRequest) -> bool:
        """Whether the server has shown how many completions it gives to such a request."""
        is_single = not isinstance(request, Request) or request.sampling.n == 1
        return is_single or self._max_samples is not None

    def note_samples(self, n_requested: int, n_received: int) -> None:
        """Note how many completions the server gave to the first request for several."""
        if n_requested == 1 or self._max_samples is not None:
            return
        self._max_samples = n_received if n_received < n_requested else sys.maxsize
        if n_received < n_requested:
            sys.stderr.write(
                f"{self._model} gives {n_received} of {n_requested} samples per request: the "
                "others are requested one after another.\n"
            )

    def parameters(self, request: AnyRequest) -> dict[str, Any]:
        """The parameters of a request; a server's defaults are left out."""
        if not isinstance(request, Request):
            return self._of_given_tokens(request)
        sampling = request.sampling
        parameters: dict[str, Any] = {
            "model": self._model,
            self._max_tokens: request.most_output_tokens // sampling.n,
            "temperature": sampling.temperature,
        }
        if self._chat:
            parameters["messages"] = request.turns or [{"role": "user", "content": request.text}]
        else:
            parameters["prompt"] = request.text
        if sampling.stop and request.thinking is None:  # else it would end a thought
            parameters["stop"] = list(sampling.stop)
        if (n := min(sampling.n, self._max_samples or sampling.n)) > 1:
            parameters["n"] = n
        if sampling.top_p < 1:
            parameters["top_p"] = sampling.top_p
        if sampling.logprobs:
            parameters["logprobs"] = True if self._chat else 1
        if request.seed is not None:
            parameters["seed"] = request.seed
        return {name: value for name, value in parameters.items() if name not in self.left_out}

    def _of_given_tokens(self, request: ScoreRequest | NextRequest) -> dict[str, Any]:
        parameters = {
            "model": self._model,
            "prompt": list(request.token_ids),
            "max_tokens": 1,  # the least that all servers continue a text by
            "temperature": 0.0,
            "logprobs": 1,
        }
        if isinstance(request, ScoreRequest):
            return {**parameters, "echo": True}
        of_vllm = {"logprob_token_ids": list(request.tokens), "return_tokens_as_token_ids": True}
        return {**parameters, **of_vllm}

    def learn(self, message: str, parameters: Mapping[str, Any]) -> bool:
        """Whether a refused parameter can be left out, or has another name."""
        if "max_completion_tokens" in message and "max_tokens" in parameters:
            self._max_tokens = "max_completion_tokens"
            return True
        for name in _OPTIONAL:
            if name in parameters and re.search(rf"\b{name}\b", message):
                if name not in self.left_out:
                    self.left_out.add(name)
                    sys.stderr.write(f"{self._model} takes no {name}: none are requested.\n")
                return True
        return False


def read_given_tokens(
    request: ScoreRequest | NextRequest, reply: Reply, usage: Usage, served: str
) -> Scored | NextLogprobs:
    """The log-probabilities that a reply has of the tokens of a request.

    Raises:
        ValueError: some token has no log-probability, or the reply has those of another text.
    """
    (choice,) = reply.choices
    fields, n = as_object(choice.logprobs), len(request.token_ids)
    logprobs = fields.token_logprobs if isinstance(request, ScoreRequest) else fields.top_logprobs
    if not logprobs:
        raise ValueError("the answer has no log-probabilities")
    if isinstance(request, NextRequest):
        names = {token: f"token_id:{token}" for token in request.tokens}
        by_token = {
            token: logprobs[0][name] for token, name in names.items() if name in logprobs[0]
        }
        if len(by_token) < len(names):
            raise ValueError(f"{len(by_token)} of {len(names)} tokens have a log-probability")
        return NextLogprobs(request.request_id, by_token, usage.prompt, usage.output)
    if not n <= len(logprobs) <= n + 1 or logprobs[0] is not None:
        raise ValueError(f"{len(logprobs)} log-probabilities, not those of a text of {n} tokens")
    if any(logprob is None for logprob in logprobs[1:n]):
        raise ValueError("a token of the text has no log-probability")
    scored = Scored.of(request, logprobs[1:n], n_cached_tokens=usage.cached)
    n_prompt, n_output = usage.prompt, usage.output
    return replace(scored, n_prompt_tokens=n_prompt, n_output_tokens=n_output, served=served)


Ask = Callable[[AnyRequest], Awaitable[Answer | Scored | NextLogprobs]]

_FILTERED = re.compile(r"content[_ ]filter|content management policy|ResponsibleAI", re.IGNORECASE)
_TOO_LONG = re.compile(r"context_length_exceeded|maximum context length", re.IGNORECASE)
_PROBE = "The capital of France is"


class Diagnosis:
    """Distinguishes a bad prompt from a server that answers no prompt, by asking another one."""

    def __init__(self, start: Start, secret: str, ask: Ask) -> None:
        assert start.endpoint is not None, "settings see to it"
        self._model, self._endpoint = start.model, start.endpoint
        self._secret, self._ask = secret, ask
        self._answered_at, self._is_dead = -math.inf, False
        self._probing = asyncio.Lock()

    def note_answer(self) -> None:
        """Note that the server has just answered."""
        self._answered_at = time.monotonic()

    def message(self, error: Exception) -> str:
        """The message of an error, without the key."""
        response = getattr(error, "response", None)
        text = getattr(error, "message", error) if response is None else error_message(response)
        if response is not None and len(self._endpoint.urls) > 1:
            text = f"{response.request.url}: {text}"
        return hide_key(self._secret, text) or type(error).__name__

    def refusal(
        self, message: str, fix: str = FIX, error: type[InputError] = InputError
    ) -> InputError:
        """The sentence that ends a run."""
        return refusal(self._model, name_servers(self._endpoint.urls), message, fix, error)

    async def explain(self, request: AnyRequest, error: Exception, began: float) -> RefusedRequest:
        """Why a prompt has no answer, if the prompt is to blame.

        Raises:
            InputError: the server is to blame, or its user.
        """
        from openai import APIStatusError

        message, usage, fix, reason = self.message(error), Usage(0, 0), FIX, "endpoint_failed"
        if isinstance(error, NoAnswerError):
            usage, reason, fix = error.usage, error.reason, error.fix or FIX
            if reason != "other_model":
                return RefusedRequest(
                    request.request_id, reason, message, usage.prompt, usage.output
                )
        elif isinstance(error, APIStatusError):
            status, details = error.status_code, f"{error.code} {error.body} {error}"
            if status in range(300, 400):
                place = hide_key(self._secret, error.response.headers.get("location", "elsewhere"))
                raise self.refusal(f"it sends us on to {place}, which is not followed") from None
            if status in (401, 402, 403, 404) or (status == 429 and NO_CREDIT.search(details)):
                raise self.refusal(message) from None
            if status not in (408, 409, 429) and status < 500:
                reason = "bad_request"
                if _FILTERED.search(details):
                    return RefusedRequest(request.request_id, "content_filter", message)
                if _TOO_LONG.search(details):
                    return RefusedRequest(request.request_id, "prompt_too_long", message)
        # An answer after this time shows that the server is not to blame.
        since = began if reason == "endpoint_failed" else 0.0
        kind = UnavailableError if reason == "endpoint_failed" else InputError
        usage += await self._probe(request, self.refusal(message, fix, kind), since)
        return RefusedRequest(request.request_id, reason, message, usage.prompt, usage.output)

    async def _probe(self, request: AnyRequest, refusal: InputError, since: float) -> Usage:
        """Ask another prompt, unless the server has answered since; the tokens that it cost."""
        from openai import OpenAIError

        async with self._probing:
            if self._answered_at >= since:
                return Usage(0, 0)
            if self._is_dead:
                raise refusal from None
            self._is_dead = True  # unless the probe is answered
            try:
                answer = await self._ask(probe(request))
            except NoAnswerError as error:
                if error.reason == "other_model":
                    raise refusal from None
                self._is_dead = False
                return error.usage
            except (OpenAIError, TimeoutError, ValueError):
                raise refusal from None
            self._is_dead = False
            self.note_answer()
            return Usage(answer.n_prompt_tokens, answer.n_output_tokens or 0)


def probe(request: AnyRequest) -> AnyRequest:
    """A request of the same kind with another prompt, or with the beginning of its text."""
    if isinstance(request, Request):
        return replace(request, request_id="", text=_PROBE, turns=())
    if isinstance(request, NextRequest):
        return replace(request, token_ids=request.token_ids[:2], tokens=request.tokens[:1])
    return replace(request, request_id="", token_ids=request.token_ids[:2], span=(0, 0))

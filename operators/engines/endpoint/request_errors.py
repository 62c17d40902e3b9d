"""Why a server gave no answer: an error of one prompt is its row, any other ends the run."""

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from factsweep.operators.engines.endpoint.openai_client import FIX, refusal, without
from factsweep.operators.engines.endpoint.rate_limited_http import NO_CREDIT, error_message
from factsweep.operators.engines.endpoint.request_parameters import (
    AnyRequest,
    NextLogprobs,
    NextRequest,
)
from factsweep.operators.engines.endpoint.response_parsing import NoAnswerError, Usage
from factsweep.operators.engines.engine_kind import Start
from factsweep.operators.engines.protocol import Answer, Refused, Request, Scored
from factsweep.operators.errors import InputError

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
        return without(self._secret, text) or type(error).__name__

    def refusal(self, message: str, fix: str = FIX) -> InputError:
        """The sentence that ends a run."""
        return refusal(self._model, self._endpoint.url, message, fix)

    async def explain(self, request: AnyRequest, error: Exception, began: float) -> Refused:
        """Why a prompt has no answer, if the prompt is to blame.

        Raises:
            InputError: the server is to blame, or its user.
        """
        from openai import APIStatusError

        message, usage, fix, reason = self.message(error), Usage(0, 0), FIX, "endpoint_failed"
        if isinstance(error, NoAnswerError):
            usage, reason, fix = error.usage, error.reason, error.fix or FIX
            if reason != "other_model":
                return Refused(request.request_id, reason, message, usage.prompt, usage.output)
        elif isinstance(error, APIStatusError):
            status, details = error.status_code, f"{error.code} {error.body} {error}"
            if status in range(300, 400):
                place = without(self._secret, error.response.headers.get("location", "elsewhere"))
                raise self.refusal(f"it sends us on to {place}, which is not followed") from None
            if status in (401, 402, 403, 404) or (status == 429 and NO_CREDIT.search(details)):
                raise self.refusal(message) from None
            if status not in (408, 409, 429) and status < 500:
                reason = "bad_request"
                if _FILTERED.search(details):
                    return Refused(request.request_id, "content_filter", message)
                if _TOO_LONG.search(details):
                    return Refused(request.request_id, "prompt_too_long", message)
        # An answer after this time shows that the server is not to blame.
        since = began if reason == "endpoint_failed" else 0.0
        usage += await self._probe(request, self.refusal(message, fix), since)
        return Refused(request.request_id, reason, message, usage.prompt, usage.output)

    async def _probe(self, request: AnyRequest, refusal: InputError, since: float) -> Usage:
        """Ask another prompt, unless the server has answered since; the tokens that it cost.

        Raises:
            InputError: the server answers nothing.
        """
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

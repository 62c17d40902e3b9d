"""Why a server gave no answer: what is wrong with a prompt is its row, the rest ends the run."""

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from factsweep.operators.engines.endpoint.dialect import AnyRequest, NextRequest, NextSaid
from factsweep.operators.engines.endpoint.openai_client import FIX, refusal, without
from factsweep.operators.engines.endpoint.replies import NoAnswerError, Usage
from factsweep.operators.engines.endpoint.watched_http import NO_CREDIT, said_in
from factsweep.operators.engines.kind import Start
from factsweep.operators.engines.protocol import Answer, Refused, Request, Scored
from factsweep.operators.errors import InputError

Ask = Callable[[AnyRequest], Awaitable[Answer | Scored | NextSaid]]

_FILTERED = re.compile(r"content[_ ]filter|content management policy|ResponsibleAI", re.IGNORECASE)
_TOO_LONG = re.compile(r"context_length_exceeded|maximum context length", re.IGNORECASE)
_PROBE = "The capital of France is"


class Blame:
    """Tells a bad prompt from a server that answers nobody, by another prompt that it is asked."""

    def __init__(self, start: Start, secret: str, ask: Ask) -> None:
        assert start.endpoint is not None, "settings see to it"
        self._model, self._endpoint = start.model, start.endpoint
        self._secret, self._ask = secret, ask
        self._answered_at, self._is_dead = -math.inf, False
        self._probing = asyncio.Lock()

    def clear(self) -> None:
        """Note that the server has just answered."""
        self._answered_at = time.monotonic()

    def said(self, error: Exception) -> str:
        """What went wrong, without the key."""
        response = getattr(error, "response", None)
        message = getattr(error, "message", error) if response is None else said_in(response)
        return without(self._secret, message) or type(error).__name__

    def refusal(self, said: str, fix: str = FIX) -> InputError:
        """The sentence that ends a run."""
        return refusal(self._model, self._endpoint.url, said, fix)

    async def explained(self, request: AnyRequest, error: Exception, began: float) -> Refused:
        """Why a prompt has no answer, if that is about the prompt.

        Raises:
            InputError: it is about the server, or about who asks.
        """
        from openai import APIStatusError

        said, usage, fix = self.said(error), Usage(0, 0), FIX
        if isinstance(error, NoAnswerError):
            usage, reason, fix = error.usage, error.reason, error.fix or FIX
            if reason != "other_model":
                return Refused(request.request_id, reason, said, usage.prompt, usage.output)
        elif isinstance(error, APIStatusError):
            status, whole = error.status_code, f"{error.code} {error.body} {error}"
            if status in range(300, 400):
                place = without(self._secret, error.response.headers.get("location", "elsewhere"))
                raise self.refusal(f"it sends us on to {place}, which is not followed") from None
            if status in (401, 402, 403, 404) or (status == 429 and NO_CREDIT.search(whole)):
                raise self.refusal(said) from None
            if status in (408, 409, 429) or status >= 500:
                reason = "endpoint_failed"
            elif _FILTERED.search(whole):
                return Refused(request.request_id, "content_filter", said)
            elif _TOO_LONG.search(whole):
                return Refused(request.request_id, "prompt_too_long", said)
            else:
                reason = "bad_request"
        else:
            reason = "endpoint_failed"
        # From when on an answer shows that a server is not to blame.
        since = began if reason == "endpoint_failed" else 0.0
        usage += await self._probed(request, self.refusal(said, fix), since)
        return Refused(request.request_id, reason, said, usage.prompt, usage.output)

    async def _probed(self, request: AnyRequest, refusal: InputError, since: float) -> Usage:
        """Ask another prompt, which tells a bad one from a server that answers nothing.

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
                if error.reason != "other_model":
                    self._is_dead = False
                    return error.usage
                raise refusal from None
            except (OpenAIError, TimeoutError, ValueError):
                raise refusal from None
            self._answered_at, self._is_dead = time.monotonic(), False
            return Usage(answer.n_prompt_tokens, answer.n_output_tokens or 0)


def probe(request: AnyRequest) -> AnyRequest:
    """Another prompt, or the beginning of a text, that is asked for in the same way."""
    if isinstance(request, Request):
        return replace(request, request_id="", text=_PROBE, turns=())
    if isinstance(request, NextRequest):
        return replace(request, token_ids=request.token_ids[:2], tokens=request.tokens[:1])
    return replace(request, request_id="", token_ids=request.token_ids[:2], span=(0, 0))

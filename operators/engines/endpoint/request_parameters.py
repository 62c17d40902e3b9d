"""Parameters of requests, learned as a server refuses some; log-probabilities of given tokens.

Those of a text come by `echo`; those behind one by `logprob_token_ids` of vLLM's own server.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from factsweep.operators.engines.endpoint.response_parsing import Reply, Usage, as_object
from factsweep.operators.engines.protocol import Request, Scored, ScoreRequest

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

    def learns(self, message: str, parameters: Mapping[str, Any]) -> bool:
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

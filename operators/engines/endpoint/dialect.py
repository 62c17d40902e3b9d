"""How a server is asked, learned as it refuses, and its log-probabilities of given tokens.

Those of a text by `echo`; those behind one by `logprob_token_ids` of vLLM's own server.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from factsweep.operators.engines.endpoint.replies import Usage
from factsweep.operators.engines.protocol import Request, Scored, ScoreRequest

_OPTIONAL = ("logprobs", "seed")  # what a request may do without, where a server does not know it


@dataclass(frozen=True)
class NextRequest:
    """A text as token ids, and the tokens whose log-probabilities behind it are asked for."""

    request_id: str
    token_ids: Sequence[int]
    tokens: Sequence[int]


@dataclass(frozen=True)
class NextSaid:
    """The log-probability of each token that was asked for, and what that took."""

    request_id: str
    logprobs: dict[int, float]
    n_prompt_tokens: int
    n_output_tokens: int


AnyRequest = Request | ScoreRequest | NextRequest


class Dialect:
    """How a server is asked for answers, learned as it refuses; `chat`: by messages."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self.left_out: set[str] = set()
        self._model, self._chat = model, chat
        self._max_tokens = "max_tokens"
        self._most_samples: int | None = None  # of a request; null: nobody has asked for several

    def is_known_for(self, request: AnyRequest) -> bool:
        """Whether the server has shown how many completions it gives to such a request."""
        is_single = not isinstance(request, Request) or request.sampling.n == 1
        return is_single or self._most_samples is not None

    def note_samples(self, n_wanted: int, n_given: int) -> None:
        """Note how many completions the server gave to the first request for several."""
        if n_wanted == 1 or self._most_samples is not None:
            return
        self._most_samples = n_given if n_given < n_wanted else sys.maxsize
        if n_given < n_wanted:
            sys.stderr.write(
                f"{self._model} gives {n_given} of {n_wanted} samples per request: the others are "
                "asked for in further requests.\n"
            )

    def parameters(self, request: AnyRequest) -> dict[str, Any]:
        """What is asked; nothing that says what a server does anyway."""
        if not isinstance(request, Request):
            return _of_given_tokens(self._model, request)
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
        if (n := min(sampling.n, self._most_samples or sampling.n)) > 1:
            asked["n"] = n
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


def _of_given_tokens(model: str, request: ScoreRequest | NextRequest) -> dict[str, Any]:
    """What is asked for; one token more is the least that all servers continue a text by."""
    asked = {"model": model, "prompt": list(request.token_ids), "max_tokens": 1, "temperature": 0.0}
    if isinstance(request, ScoreRequest):
        return {**asked, "echo": True, "logprobs": 1}
    of_vllm = {"logprob_token_ids": list(request.tokens), "return_tokens_as_token_ids": True}
    return {**asked, "logprobs": 1, **of_vllm}


def read_given_tokens(
    request: ScoreRequest | NextRequest, said: Any, usage: Usage, served: str
) -> Scored | NextSaid:
    """What was asked for, in what a server said.

    Raises:
        ValueError: some token has no log-probability, or there are those of another text.
    """
    (choice,) = said.choices
    found = getattr(choice, "logprobs", None)
    if isinstance(request, NextRequest):
        return NextSaid(request.request_id, _behind(request, found), usage.prompt, usage.output)
    scored = Scored.of(request, _of_text(request, found), n_cached_tokens=usage.cached)
    n_prompt, n_output = usage.prompt, usage.output
    return replace(scored, n_prompt_tokens=n_prompt, n_output_tokens=n_output, served=served)


def _of_text(request: ScoreRequest, said: Any) -> list[float]:
    found = getattr(said, "token_logprobs", None)
    if not found:
        raise ValueError("the answer has no log-probabilities")
    n = len(request.token_ids)
    if not n <= len(found) <= n + 1 or found[0] is not None:
        raise ValueError(f"{len(found)} log-probabilities, not those of a text of {n} tokens")
    if any(each is None for each in found[1:n]):
        raise ValueError("a token of the text has no log-probability")
    return list(found[1:n])


def _behind(request: NextRequest, said: Any) -> dict[int, float]:
    steps = getattr(said, "top_logprobs", None)
    if not steps:
        raise ValueError("the answer has no log-probabilities")
    asked = {f"token_id:{token}": token for token in request.tokens}
    known = {asked[name]: logprob for name, logprob in steps[0].items() if name in asked}
    if len(known) < len(asked):
        raise ValueError(f"{len(known)} of {len(asked)} tokens have a log-probability")
    return known

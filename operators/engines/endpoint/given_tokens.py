"""Log-probabilities of given tokens from a server's `/completions`: of a text, or behind one.

Of a text by `echo`; behind one, where the entities that may follow a cloze are compared, by
`logprob_token_ids` of vLLM's own server. Both are sent as token ids, so that a server reads what
the engine in this process would.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from factsweep.operators.engines.endpoint.replies import Usage
from factsweep.operators.engines.protocol import Scored, ScoreRequest


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


def parameters(model: str, request: ScoreRequest | NextRequest) -> dict[str, Any]:
    """What is asked for; one token more is the least that all servers continue a text by."""
    asked = {"model": model, "prompt": list(request.token_ids), "max_tokens": 1, "temperature": 0.0}
    if isinstance(request, ScoreRequest):
        return {**asked, "echo": True, "logprobs": 1}
    of_vllm = {"logprob_token_ids": list(request.tokens), "return_tokens_as_token_ids": True}
    return {**asked, "logprobs": 1, **of_vllm}


def read(
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

"""Log-probabilities of given tokens behind a text, from vLLM's own server (`logprob_token_ids`).

By these the entities that may follow a cloze are compared. The text and the tokens are sent as
ids, so that a server reads what the engine in this process would.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


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


def parameters(model: str, request: NextRequest) -> dict[str, Any]:
    """What is asked for, in the words of OpenAI."""
    prompt = list(request.token_ids)
    return {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0.0, "logprobs": 1}


def further(request: NextRequest) -> dict[str, Any]:
    """What is asked for in addition, in the words of vLLM."""
    return {"logprob_token_ids": list(request.tokens), "return_tokens_as_token_ids": True}


def said(request: NextRequest, answer: Any) -> dict[int, float]:
    """The log-probabilities in what a server said.

    Raises:
        ValueError: some token has none.
    """
    (choice,) = answer.choices
    steps = getattr(getattr(choice, "logprobs", None), "top_logprobs", None)
    if not steps:
        raise ValueError("the answer has no log-probabilities")
    found = {f"token_id:{token}": token for token in request.tokens}
    known = {found[name]: logprob for name, logprob in steps[0].items() if name in found}
    if len(known) < len(found):
        raise ValueError(f"{len(known)} of {len(found)} tokens have a log-probability")
    return known

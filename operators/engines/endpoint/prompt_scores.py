"""Log-probabilities of a given text from a server's `/completions`: `echo` with `logprobs`.

The text is sent as token ids, so that a server reads what the engine in this process would.
"""

from typing import Any

from factsweep.operators.engines.protocol import Scored, ScoreRequest


def parameters(model: str, request: ScoreRequest) -> dict[str, Any]:
    """What is asked for; one token more is the least that all servers continue a text by."""
    return {
        "model": model,
        "prompt": list(request.token_ids),
        "max_tokens": 1,
        "temperature": 0.0,
        "echo": True,
        "logprobs": 1,
    }


def scored(request: ScoreRequest, said: Any) -> Scored:
    """The score in what a server said.

    Raises:
        ValueError: there is none.
    """
    (choice,) = said.choices
    found = getattr(getattr(choice, "logprobs", None), "token_logprobs", None)
    if not found:
        raise ValueError("the answer has no log-probabilities")
    n = len(request.token_ids)
    if not n <= len(found) <= n + 1 or found[0] is not None:
        raise ValueError(f"{len(found)} log-probabilities, not those of a text of {n} tokens")
    if any(each is None for each in found[1:n]):
        raise ValueError("a token of the text has no log-probability")
    return Scored.of(request, found[1:n], n_cached_tokens=0)

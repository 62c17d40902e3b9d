"""A server that does anything: every prompt is answered or explained once, to the token.

FACTSWEEP_HOSTILE=500 .venv/bin/pytest tests/operators/engines/endpoint/test_endpoint_hostile.py
"""

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from factsweep.operators.engines.protocol import Answer, RefusedRequest, Sampling
from tests.chat_server import CUT, HANG_UP, Said
from tests.operators.engines.endpoint.test_endpoint import Says, ask, body, error, prompt_of, well

ROUNDS = int(os.environ.get("FACTSWEEP_HOSTILE", "3"))
PROMPTS, TIMEOUT_S = 120, 2.0
FAULTS = (0.05, 0.2, 0.5)  # the share of requests that fail, and are sent again
PROBE = "The capital of France is"  # asked before a prompt is blamed


def of_chat(**message: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": None, **message}}


# What passes, and is asked again: nothing of it is an answer.
PASSES: list[Says] = [
    lambda _: (429, {}, {"Retry-After-Ms": "30"}),
    lambda _: (429, {}, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}),
    lambda _: (408, b""),
    lambda _: (409, {"error": {"message": "conflict"}}),
    lambda _: (500, b"<html>"),
    lambda _: (503, {}, {"Retry-After": "soon", "Retry-After-Ms": "1"}),
    lambda _: (529, {"error": {"message": "overloaded"}}),
    lambda _: (HANG_UP, ""),
    lambda a: (CUT, body(a)),
    lambda _: (200, b""),
    lambda _: (200, b"<html>"),
    lambda _: (200, b'{"choices": [{"te'),
    lambda _: (200, b"[1, 2]"),
    lambda _: (200, b"\xff\xfe\x00"),
    lambda _: (200, {"choices": []}),
    lambda _: (200, {"choices": ["Paris"]}),
    lambda _: (200, {"error": {"message": "not really"}}),
]
# What is said of a prompt, and the reason of its row.
EXPLAINED: list[tuple[str, Says]] = [
    ("content_filter", lambda a: (200, body(a, choice={"finish_reason": "content_filter"}))),
    ("content_filter", lambda _: error(400, "flagged", "content_filter")),
    ("other_model", lambda a: (200, body(a, model="another-model"))),
    ("prompt_too_long", lambda _: error(400, "too long", "context_length_exceeded")),
    ("bad_request", lambda _: error(422, "odd text")),
    ("bad_answer", lambda a: (200, body({**a, "n": a.get("n", 1) + 1}))),
]
REFUSED = ("refused", lambda a: (200, body(a, choice=of_chat(refusal="I will not."))))


@dataclass
class Hostile:
    """Serves replies that its seed determines, and counts them with their tokens."""

    seed: int
    chat: bool
    served: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Choose how bad it is."""
        self._lock, self._draws = threading.Lock(), Random(self.seed)
        self._passes = self._draws.choice(FAULTS)
        self._explained = self._draws.choice([0.02, 0.1, 0.3])

    def __call__(self, request: dict[str, Any]) -> Said:
        with self._lock:
            if not self.served:  # else no prompt shows that the server answers
                return self._reply(request, "", well)
            draw = self._draws.random()
            if draw < self._passes:
                return self._draws.choice(PASSES)(request)
            if draw < self._passes + self._explained:
                explanations = [*EXPLAINED, *([REFUSED] if self.chat else [])]
                return self._reply(request, *self._draws.choice(explanations))
            is_late = draw > 0.995
            if not is_late:
                return self._reply(request, "", well)
        time.sleep(TIMEOUT_S + 0.5)
        return well(request)

    @property
    def fails_half(self) -> bool:
        """Whether a prompt may meet with so many faults in a row that it is given up."""
        return self._passes == max(FAULTS)

    def _reply(self, request: dict[str, Any], reason: str, serve: Says) -> Said:
        status, content, *_ = reply = serve(request)
        prompt = prompt_of(request)
        self.served[prompt] += 1
        if reason:
            self.reasons[prompt] = reason
        if status == 200:
            self.spent.update(content["usage"])
        return reply


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * ROUNDS)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_endpoint_hostile_server_every_prompt_is_answered_or_explained_once(seed: int) -> None:
    hostile = Hostile(seed, chat=bool(seed % 2))
    n = (1, 3)[seed % 3 == 1]
    sampling = Sampling(10, ("\n",), n=n, temperature=float(n > 1), logprobs=n == 1)
    results = ask(hostile, PROMPTS, sampling, timeout_s=TIMEOUT_S, chat=hostile.chat)
    assert [result.request_id for result in results] == [f"p{i}" for i in range(PROMPTS)]
    prompts = [f"prompt number {i}" for i in range(PROMPTS)]
    given_up = set(prompts) - hostile.served.keys()  # faults all the time until give_up_s
    assert len(given_up) <= (PROMPTS // 20 if hostile.fails_half else 0)
    served = Counter(
        {prompt_text: n for prompt_text, n in hostile.served.items() if prompt_text != PROBE}
    )
    assert served == Counter(prompt_text for prompt_text in prompts if prompt_text not in given_up)
    for prompt, answer in zip(prompts, results, strict=True):
        reason = "endpoint_failed" if prompt in given_up else hostile.reasons.get(prompt)
        if reason is None:
            assert isinstance(answer, Answer), answer
            texts = [completion.text for completion in answer.completions]
            assert texts == [f" re {prompt}"] * n
        else:
            assert isinstance(answer, RefusedRequest)
            assert answer.reason == reason
    assert sum(result.n_prompt_tokens for result in results) == hostile.spent["prompt_tokens"]
    assert (
        sum(result.n_output_tokens or 0 for result in results) == hostile.spent["completion_tokens"]
    )

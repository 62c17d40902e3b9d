"""What a decoder engine is asked, and what it answers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Sampling:
    """How an answer is decoded. Temperature 0 is greedy; `n` answers differ only by their draw."""

    max_tokens: int
    stop: tuple[str, ...]
    n: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    logprobs: bool = False


@dataclass(frozen=True)
class Request:
    """A prompt as token ids. `seed` is null for greedy decoding."""

    request_id: str
    token_ids: list[int]
    sampling: Sampling
    seed: int | None = None


@dataclass(frozen=True)
class Completion:
    """One decoded answer.

    `n_tokens` and `logprob` (the sum of log-probabilities; null where not asked) leave out the
    token that ended the answer: the stop string's or the end of sequence.
    """

    text: str
    n_tokens: int
    logprob: float | None
    finish_reason: str


@dataclass(frozen=True)
class Answer:
    """The n completions of a request, and how many of its prompt's tokens came from the cache."""

    request_id: str
    completions: tuple[Completion, ...]
    n_prompt_tokens: int
    n_cached_tokens: int


class Engine(Protocol):
    """Answers requests as they come, in any order, keeping the hardware full between them."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer for each request, in the order they are finished."""
        ...

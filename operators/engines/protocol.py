"""Requests to engines and their results: continuations, scores of texts, filled masks."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.prompts.plausibility import entity_tokens
from factsweep.operators.prompts.tokens import encode


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
class Thinking:
    """A thought before the answer, marked as a parser of vLLM's (null: the tokenizer's) says."""

    max_tokens: int
    parser: str | None = None


@dataclass(frozen=True)
class Thought:
    """A model's thought before an answer, and how it ended.

    By `itself`; at the `budget`, where it was closed; or in `silence`: the model ended its turn
    within the thought, which was closed likewise. `unknown`: a server does not show it.
    """

    text: str
    n_tokens: int
    ended: Literal["itself", "budget", "silence", "unknown"]


@dataclass(frozen=True)
class Request:
    """A prompt as token ids, as text, and as the turns of a chat (empty: one of the user).

    `seed` is null for greedy decoding, `thinking` for an answer without a thought.
    """

    request_id: str
    token_ids: list[int]
    sampling: Sampling
    seed: int | None = None
    text: str = ""
    turns: tuple[Mapping[str, str], ...] = ()
    thinking: Thinking | None = None

    @property
    def most_output_tokens(self) -> int:
        """The maximum number of tokens of the answers with their thoughts."""
        thoughts = self.thinking.max_tokens if self.thinking else 0
        return self.sampling.n * (self.sampling.max_tokens + thoughts)


@dataclass(frozen=True)
class Completion:
    """One decoded answer.

    `n_tokens` and `logprob` (the sum of log-probabilities; null if not requested) leave out the
    token that ended the answer: the stop string's or the end of sequence.
    """

    text: str
    n_tokens: int
    logprob: float | None
    finish_reason: str
    thought: Thought | None = None


@dataclass(frozen=True)
class Answer:
    """The n completions of a request, and how many of its prompt's tokens came from the cache.

    `n_output_tokens` is a server's count, null where it is the sum over the completions; `served`
    is the model that a server names, and `without` has the parameters that it does not take:
    `logprobs`, `seed`, `n`, where it needed `n_requests` for the completions. The prompt was
    removed from `n_prompts_removed` completions.
    """

    request_id: str
    completions: tuple[Completion, ...]
    n_prompt_tokens: int
    n_cached_tokens: int
    n_output_tokens: int | None = None
    served: str | None = None
    without: tuple[str, ...] = ()
    n_requests: int = 1
    n_prompts_removed: int = 0


@dataclass(frozen=True)
class Refused:
    """A request without an answer, the reason, and the tokens that it cost nevertheless."""

    request_id: str
    reason: str
    detail: str
    n_prompt_tokens: int = 0
    n_output_tokens: int = 0


class Engine(Protocol):
    """Answers requests as they arrive, in any order, and keeps the hardware busy."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer | Refused]:
        """One answer for each request, in the order they are finished; or why there is none."""
        ...


@dataclass(frozen=True)
class ScoreRequest:
    """A whole text as token ids, its group with a common prefix, and its entity's [start, end)."""

    request_id: str
    token_ids: Sequence[int]
    group: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Scored:
    """The log-probability of a text, and that of its entity: sums over tokens, in nats.

    Every token is scored but the first: with BOS before it, the whole text. `n_tokens` counts the
    scored ones. `logprob` is null if there are none, `entity_logprob` if a token of the entity is
    not scored, or if it has none; `entity_n_tokens` counts all of its tokens. `n_output_tokens` are
    charged by a server in addition, `served` is the model that it names.
    """

    request_id: str
    n_tokens: int
    logprob: float | None
    entity_n_tokens: int
    entity_logprob: float | None
    n_prompt_tokens: int
    n_cached_tokens: int
    n_output_tokens: int = 0
    served: str | None = None

    @classmethod
    def of(
        cls, request: ScoreRequest, logprobs: Sequence[float], *, n_cached_tokens: int
    ) -> "Scored":
        """Sum up the log-probabilities of a request's tokens, from the second on."""
        start, end = request.span
        is_scored = 0 < start < end
        return cls(
            request_id=request.request_id,
            n_tokens=len(logprobs),
            logprob=math.fsum(logprobs) if logprobs else None,
            entity_n_tokens=end - start,
            entity_logprob=math.fsum(logprobs[start - 1 : end - 1]) if is_scored else None,
            n_prompt_tokens=len(request.token_ids),
            n_cached_tokens=n_cached_tokens,
        )


@dataclass(frozen=True)
class MaskedRequest:
    """A prompt as token ids, exactly one of them the mask, and the candidate tokens."""

    request_id: str
    token_ids: Sequence[int]
    candidate_ids: Sequence[int]


@dataclass(frozen=True)
class Prediction:
    """The most probable token at the mask; with probabilities, those of all candidates too."""

    request_id: str
    token_id: int
    token: str
    probability: float
    candidate_probabilities: list[float]


class Scorer(Protocol):
    """Scores texts as they arrive, the texts of a group in succession."""

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored | Refused]:
        """One score for each request, in the order they are finished; or why there is none."""
        ...


def score_requests(tokenizer: Any, items: pl.DataFrame) -> Iterator[ScoreRequest]:
    """A request for each item (columns: ITEMS), in their order; texts are tokenised whole.

    The texts of a pair in one setting are a group.

    Raises:
        InputError: the tokenizer cannot say where its tokens stand, or writes BOS twice.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"the tokenizer of {tokenizer.name_or_path} does not say which characters a token "
            "holds; take one that transformers calls fast (with a tokenizer.json)."
        )
    if items.is_empty():
        return
    rows = items.with_columns(
        text=pl.col("context") + pl.col("continuation"),
        group=pl.format("{}.{}", "pair_id", "setting"),
    )
    texts = rows["text"].to_list()
    offsets = tokenizer(texts, return_offsets_mapping=True).offset_mapping
    spans = rows.select("item_id", "group", "entity_start", "entity_end").iter_rows()
    for ids, text_offsets, (item_id, group, start, end) in zip(
        encode(tokenizer, texts), offsets, spans, strict=True
    ):
        yield ScoreRequest(item_id, ids, group, entity_tokens(text_offsets, start, end))

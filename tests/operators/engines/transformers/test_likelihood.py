"""Likelihood, against a plain pass over each text by itself: no cache, no batch, no padding."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.engines.protocol import Scored, ScoreRequest
from factsweep.operators.engines.transformers import batches
from factsweep.operators.engines.transformers import likelihood as batched_lm
from factsweep.operators.engines.transformers.likelihood import Likelihood

# Of a sum of log-probabilities in float32.
TOLERANCE = 1e-4
N_VOCABULARY = 40
LLAMA = {
    "vocab_size": N_VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
}
# Of the families in conf/model, and one whose attention reaches back a few tokens only.
CONFIGS = {
    "gpt2": {"vocab_size": N_VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2},
    "bloom": {"vocab_size": N_VOCABULARY, "hidden_size": 16, "n_layer": 2, "n_head": 2},
    "gpt_neox": {
        key: value
        for key, value in LLAMA.items()
        if key not in ("num_key_value_heads", "pad_token_id")
    },
    "llama": LLAMA,
    "olmo": LLAMA,
    "mistral": {**LLAMA, "sliding_window": 3},
}
TOKENS = st.lists(st.integers(1, N_VOCABULARY - 1), max_size=5)


@pytest.fixture(scope="module", params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(request.param, **CONFIGS[request.param])
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@st.composite
def groups(draw: st.DrawFn) -> list[ScoreRequest]:
    """Up to three groups of texts with up to five tokens in common, and up to five of their own."""
    requests = []
    for group in range(draw(st.integers(1, 3))):
        begin = draw(TOKENS)
        for i, suffix in enumerate(draw(st.lists(TOKENS, min_size=1, max_size=4))):
            ids = begin + suffix
            start = draw(st.integers(0, len(ids)))
            span = start, draw(st.integers(start, len(ids)))
            requests.append(ScoreRequest(f"{group}.{i}", ids, f"{group}", span))
    return requests


@contextmanager
def tokens_per_batch(limit: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "MOST_TOKENS", limit)
        yield


def by_id(scores: Iterable[Scored]) -> dict[str, Scored]:
    scored = list(scores)
    assert len({score.request_id for score in scored}) == len(scored)
    return {score.request_id: score for score in scored}


def plain(model: Any, request: ScoreRequest) -> Scored:
    ids = torch.tensor([list(request.token_ids)])
    logprobs = []
    if ids.shape[1] > 1:
        with torch.inference_mode():
            rows = model(ids, use_cache=False).logits[0].log_softmax(-1)
        logprobs = [float(rows[i - 1, ids[0, i]]) for i in range(1, ids.shape[1])]
    return Scored.of(request, logprobs, n_cached_tokens=0)


def check(scores: dict[str, Scored], expected: Iterable[Scored]) -> None:
    for score in expected:
        own_score = scores.pop(score.request_id)
        assert own_score.logprob == pytest.approx(score.logprob, abs=TOLERANCE)
        assert own_score.entity_logprob == pytest.approx(score.entity_logprob, abs=TOLERANCE)
        assert (own_score.n_tokens, own_score.entity_n_tokens) == (
            score.n_tokens,
            score.entity_n_tokens,
        )
        assert own_score.n_prompt_tokens == score.n_prompt_tokens
    assert scores == {}


@given(requests=groups(), limit=st.sampled_from([1, 3, 8, 2048]))
def test_scores_equal_a_plain_pass_over_each_text(
    model: Any, requests: list[ScoreRequest], limit: int
) -> None:
    with tokens_per_batch(limit):
        scores = by_id(Likelihood(model).scores(requests))
    check(scores, [plain(model, request) for request in requests])


@given(requests=groups(), data=st.data())
def test_scores_any_order_within_a_group_gives_the_same_numbers(
    model: Any, requests: list[ScoreRequest], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(requests))
    shuffled.sort(key=lambda request: request.group, reverse=True)
    first, second = (by_id(Likelihood(model).scores(order)) for order in (requests, shuffled))
    # The batches are the same; how threads share out a sum is not.
    for request_id, score in first.items():
        assert second[request_id].logprob == pytest.approx(score.logprob, abs=1e-5)


class Passes:
    """A model that notes the shape of what it is given; its precision is unknown."""

    dtype: Any = None

    def __init__(self, model: Any) -> None:
        self._model = model
        self.config = model.config
        self.shapes: list[torch.Size] = []

    def to(self, _device: str) -> "Passes":
        return self

    def eval(self) -> "Passes":
        return self

    def __call__(self, *, input_ids: Any, **options: Any) -> Any:
        self.shapes.append(input_ids.shape)
        return self._model(input_ids=input_ids, **options)


@pytest.fixture
def passes(model: Any) -> Passes:
    return Passes(model)


def test_scores_shared_tokens_are_run_once(passes: Passes) -> None:
    begin = list(range(1, 21))
    tails = [[30], [31], [32, 33], [34, 35]]
    scores = Likelihood(passes).scores([ScoreRequest("x", begin + t, "g", (0, 0)) for t in tails])
    assert [score.n_cached_tokens for score in scores] == [0, 20, 20, 20]
    assert passes.shapes == [(1, 20), (4, 1)]


def test_scores_text_alone_takes_one_pass(passes: Passes) -> None:
    (score,) = Likelihood(passes).scores([ScoreRequest("x", [5, 6, 7, 8], "g", (0, 0))])
    assert (score.n_tokens, passes.shapes) == (3, [(1, 3)])


@given(requests=groups(), limit=st.integers(1, 24))
def test_scores_no_pass_is_wider_than_a_batch(
    model: Any, requests: list[ScoreRequest], limit: int
) -> None:
    passes = Passes(model)
    with tokens_per_batch(limit):
        list(Likelihood(passes).scores(requests))
    assert all(shape.numel() <= limit for shape in passes.shapes)


def test_scores_shared_tokens_of_groups_are_run_once_in_float32(model: Any) -> None:
    passes = Passes(model)
    passes.dtype = torch.float32
    starts = [[1, *range(20, 30)], [2, *range(20, 30)]]
    texts = [[*start, end] for end in (31, 32, 33) for start in starts]
    requests = [ScoreRequest(f"{n}", text, f"{n}", (0, 0)) for n, text in enumerate(texts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched_lm, "_PASS_TOKENS", 4)
        scores = by_id(Likelihood(passes).scores(requests))
    assert passes.shapes == [(1, 11), (1, 11)]
    check(scores, [plain(model, request) for request in requests])


def test_scores_requests_are_taken_group_by_group_in_less_precision(passes: Passes) -> None:
    requests = iter([ScoreRequest(f"{i}", [3, i], f"{i // 3}", (0, 0)) for i in range(1, 12)])
    next(Likelihood(passes).scores(requests))
    assert [request.request_id for request in requests] == [str(i) for i in range(4, 12)]


def test_scores_no_requests_is_no_scores(model: Any) -> None:
    assert list(Likelihood(model).scores([])) == []

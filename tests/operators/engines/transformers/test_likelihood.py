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
from factsweep.operators.engines.transformers import batched_lm
from factsweep.operators.engines.transformers.batched_lm import Likelihood

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
        for i, own in enumerate(draw(st.lists(TOKENS, min_size=1, max_size=4))):
            ids = begin + own
            start = draw(st.integers(0, len(ids)))
            span = start, draw(st.integers(start, len(ids)))
            requests.append(ScoreRequest(f"{group}.{i}", ids, f"{group}", span))
    return requests


@contextmanager
def tokens_per_batch(limit: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched_lm, "_SCORED_TOKENS", limit)
        yield


def by_id(found: Iterable[Scored]) -> dict[str, Scored]:
    scored = list(found)
    assert len({each.request_id for each in scored}) == len(scored)
    return {each.request_id: each for each in scored}


def plain(model: Any, request: ScoreRequest) -> Scored:
    ids = torch.tensor([list(request.token_ids)])
    logprobs = []
    if ids.shape[1] > 1:
        with torch.inference_mode():
            rows = model(ids, use_cache=False).logits[0].log_softmax(-1)
        logprobs = [float(rows[i - 1, ids[0, i]]) for i in range(1, ids.shape[1])]
    return Scored.of(request, logprobs, n_cached_tokens=0)


def check(found: dict[str, Scored], expected: Iterable[Scored]) -> None:
    for each in expected:
        mine = found.pop(each.request_id)
        assert mine.logprob == pytest.approx(each.logprob, abs=TOLERANCE)
        assert mine.entity_logprob == pytest.approx(each.entity_logprob, abs=TOLERANCE)
        assert (mine.n_tokens, mine.entity_n_tokens) == (each.n_tokens, each.entity_n_tokens)
        assert mine.n_prompt_tokens == each.n_prompt_tokens
    assert found == {}


@given(requests=groups(), limit=st.sampled_from([1, 3, 8, 2048]))
def test_scores_equal_a_plain_pass_over_each_text(
    model: Any, requests: list[ScoreRequest], limit: int
) -> None:
    with tokens_per_batch(limit):
        found = by_id(Likelihood(model).scores(requests))
    check(found, [plain(model, request) for request in requests])


@given(requests=groups(), data=st.data())
def test_scores_any_order_within_a_group_gives_the_same_numbers(
    model: Any, requests: list[ScoreRequest], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(requests))
    shuffled.sort(key=lambda request: request.group, reverse=True)
    first, second = (by_id(Likelihood(model).scores(each)) for each in (requests, shuffled))
    # The batches are the same; how threads share out a sum is not.
    for request_id, each in first.items():
        assert second[request_id].logprob == pytest.approx(each.logprob, abs=1e-5)


class Passes:
    """A model that notes the shape of what it is given."""

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
    found = Likelihood(passes).scores([ScoreRequest("x", begin + t, "g", (0, 0)) for t in tails])
    assert [each.n_cached_tokens for each in found] == [0, 19, 19, 19]
    assert passes.shapes == [(1, 19), (4, 2)]


def test_scores_text_alone_takes_one_pass(passes: Passes) -> None:
    (found,) = Likelihood(passes).scores([ScoreRequest("x", [5, 6, 7, 8], "g", (0, 0))])
    assert (found.n_tokens, passes.shapes) == (3, [(1, 3)])


@given(requests=groups(), limit=st.integers(1, 24))
def test_scores_no_pass_is_wider_than_a_batch(
    model: Any, requests: list[ScoreRequest], limit: int
) -> None:
    passes = Passes(model)
    with tokens_per_batch(limit):
        list(Likelihood(passes).scores(requests))
    assert all(shape.numel() <= limit for shape in passes.shapes)


def test_scores_requests_are_taken_group_by_group(model: Any) -> None:
    requests = iter([ScoreRequest(f"{i}", [3, i], f"{i // 3}", (0, 0)) for i in range(1, 12)])
    next(Likelihood(model).scores(requests))
    assert [request.request_id for request in requests] == [str(i) for i in range(4, 12)]


def test_scores_no_requests_is_no_scores(model: Any) -> None:
    assert list(Likelihood(model).scores([])) == []

"""Scoring with vLLM, compared with transformers on the texts of the mini set, in float32."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from factsweep.operators.engines.protocol import (
    Request,
    Sampling,
    Scored,
    ScoreRequest,
    score_requests,
)
from factsweep.operators.engines.transformers.likelihood import Likelihood
from factsweep.operators.engines.vllm import VllmEngine
from factsweep.operators.prompts.plausibility import PROMPT_TYPES
from factsweep.operators.prompts.plausibility import items as items_of
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.inputs.models import Weights

pytestmark = pytest.mark.engine

# Of a sum over some twenty tokens: two engines, and one engine with other texts in its batches.
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def mini_requests(tokenizer: Any) -> list[ScoreRequest]:
    facts = catalog.read_facts(catalog.entry("probelm-mini"))
    items = [
        items_of(facts, prompt_type, seed=0).head(22) for prompt_type in PROMPT_TYPES
    ]  # of two groups each
    return [request for of_type in items for request in score_requests(tokenizer, of_type)]


def read_plainly(smollm2: Weights, requests: list[ScoreRequest]) -> dict[str, Scored]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(models.location(smollm2), dtype=torch.float32)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine several wait for each other in every small step
    try:
        return by_id(Likelihood(model).scores(requests))
    finally:
        torch.set_num_threads(n_threads)


def check_equal(scored: dict[str, Scored], expected: dict[str, Scored]) -> None:
    assert scored.keys() == expected.keys()
    for request_id, value in expected.items():
        of_vllm = scored[request_id]
        assert of_vllm.logprob == pytest.approx(value.logprob, abs=TOLERANCE)
        assert of_vllm.entity_logprob == pytest.approx(value.entity_logprob, abs=TOLERANCE)
        assert (of_vllm.n_tokens, of_vllm.entity_n_tokens) == (
            value.n_tokens,
            value.entity_n_tokens,
        )


def by_id(scores: Iterable[Scored]) -> dict[str, Scored]:
    return {score.request_id: score for score in scores}


def alone(engine: VllmEngine, ids: list[int]) -> Scored:
    (score,) = engine.scores([ScoreRequest("x", ids, "g", (0, 0))])
    return score


def test_scores_equal_transformers(
    engine: VllmEngine, smollm2: Weights, mini_requests: list[ScoreRequest]
) -> None:
    scored = by_id(engine.scores(iter(mini_requests)))
    check_equal(scored, read_plainly(smollm2, mini_requests))


@pytest.mark.slow
def test_scores_another_order_gives_the_same_values(
    engine: VllmEngine, mini_requests: list[ScoreRequest]
) -> None:
    scored = by_id(engine.scores(iter(mini_requests)))
    shuffled = random.Random(0).sample(mini_requests, len(mini_requests))
    for request_id, score in by_id(engine.scores(shuffled)).items():
        assert score.logprob == pytest.approx(scored[request_id].logprob, abs=TOLERANCE)


@pytest.mark.slow
def test_scores_text_that_lies_in_the_cache_is_the_same(engine: VllmEngine) -> None:
    # Rows of cached tokens hold what was in that memory before.
    ids = [(37 * i) % 4000 + 100 for i in range(200)]
    uncached = alone(engine, ids)
    list(engine.answers([Request("x", ids, Sampling(max_tokens=1, stop=()))]))
    after = alone(engine, ids)
    assert after.logprob == pytest.approx(uncached.logprob, abs=TOLERANCE)
    assert after.n_cached_tokens == 0


@pytest.mark.slow
def test_scores_text_longer_than_a_step_is_the_sum_of_its_parts(engine: VllmEngine) -> None:
    ids = [(37 * i) % 4000 + 100 for i in range(500)]
    requests = [ScoreRequest(f"{i}", ids, "g", (1, 500)) for i in range(6)]  # 512 per step
    scores = list(engine.scores(requests))
    assert {score.n_tokens for score in scores} == {499}
    for score in scores:
        assert score.logprob == score.entity_logprob
        assert score.logprob == pytest.approx(scores[0].logprob, abs=20 * TOLERANCE)


def test_scores_first_token_alone_has_no_number(engine: VllmEngine) -> None:
    score = alone(engine, [100])
    assert (score.n_tokens, score.logprob, score.entity_logprob) == (0, None, None)


def test_scores_requests_are_fed_within_the_bound(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_max_tokens", 50)
    pulled = []

    def waiting() -> Iterator[ScoreRequest]:
        for number in range(30):
            pulled.append(number)
            yield ScoreRequest(f"{number}", [100] * 20, "g", (0, 0))

    under_way = [len(pulled) - answered for answered, _ in enumerate(engine.scores(waiting()))]
    # Three of 20 tokens fill the bound; the rest waits with the caller.
    assert max(under_way) == 3
    assert len(under_way) == 30


def test_scores_abandoned_midway_do_not_reach_the_next_call(engine: VllmEngine) -> None:
    abandoned = engine.scores([ScoreRequest(f"{i}", [100, i], "g", (0, 0)) for i in range(9)])
    next(abandoned)
    abandoned.close()
    sampling = Sampling(max_tokens=1, stop=())
    answers = list(engine.answers([Request("next", [100, 200], sampling)]))
    assert [answer.request_id for answer in answers] == ["next"]


def test_scores_too_long_text_leaves_the_engine_usable(engine: VllmEngine) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="maximum model length"):
        alone(engine, [100] * 512)
    assert alone(engine, [100, 200]).n_tokens == 1

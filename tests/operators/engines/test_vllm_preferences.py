"""Preferences with vLLM, compared with transformers on real labels, in float32."""

from typing import Any

import pytest

from factsweep.operators.engines.preference import BeamsRequest, Plausible, PreferRequest
from factsweep.operators.engines.transformers.batched_lm import CandidatesLM
from factsweep.operators.engines.vllm import VllmEngine
from factsweep.operators.prompts.clozes import ending_tokens
from factsweep.operators.prompts.label_trie import Labels, Name
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights

pytestmark = pytest.mark.engine

TOLERANCE = 1e-3  # of a sum over a few tokens, by two engines
CLOZE = "The capital of France is"
NAMES = [
    *(Name("Q90", label) for label in ("Paris", "City of Light")),
    *(Name("Q64", label) for label in ("Berlin", "Berlin, Germany")),
    *(Name(f"Q{i}", city) for i, city in enumerate(["Lyon", "Marseille", "Rome", "New York City"])),
]


@pytest.fixture(scope="module")
def plain(smollm2: Weights, tokenizer: Any) -> CandidatesLM:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(models.location(smollm2), dtype=torch.float32)
    return CandidatesLM(model, tokenizer)


def asked(tokenizer: Any, search: Any, n: int) -> PreferRequest:
    (behind,) = Labels(tokenizer, NAMES).behind([CLOZE])
    ending = ending_tokens(tokenizer, "sentence")
    order = [each for each in behind.trie.nodes_of if each != "Q90"]
    distractors = order if search == "given" else ()
    return PreferRequest("x", behind.token_ids, behind.trie, ending, "Q90", search, n, distractors)


def close(one: Plausible, other: Plausible) -> bool:
    numbers = ((each.logprob, each.open_logprob) for each in (one, other))
    same = (one.entity_id, one.label, one.n_tokens) == (
        other.entity_id,
        other.label,
        other.n_tokens,
    )
    return same and all(abs(a - b) < TOLERANCE for a, b in zip(*numbers, strict=True))


@pytest.mark.parametrize(("search", "n"), [("given", 9), ("exact", 3), ("optimal", 2)])
def test_preferences_equal_transformers(
    engine: VllmEngine, plain: CandidatesLM, tokenizer: Any, search: str, n: int
) -> None:
    request = asked(tokenizer, search, n)
    (mine,), (its,) = engine.preferences([request]), plain.preferences([request])
    assert close(mine.answer, its.answer)
    assert len(mine.distractors) == len(its.distractors)
    assert all(map(close, mine.distractors, its.distractors))


def test_beams_equal_transformers(engine: VllmEngine, plain: CandidatesLM, tokenizer: Any) -> None:
    request = BeamsRequest("x", tokenizer(CLOZE).input_ids, 3, max_tokens=3, top_tokens=5)
    (mine,), (its,) = engine.beams([request]), plain.beams([request])
    assert list(mine.texts) == list(its.texts)
    assert list(mine.logprobs) == pytest.approx(its.logprobs, abs=TOLERANCE)
    assert list(mine.top_tokens) == list(its.top_tokens)

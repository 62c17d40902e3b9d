"""Preferences with vLLM, compared with transformers on real labels, in float32."""

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from factsweep.operators import seeds
from factsweep.operators.engines.preference import (
    BeamsRequest,
    Branch,
    BranchLogprobs,
    EntityScore,
    PreferRequest,
    log_sum,
    preferences,
)
from factsweep.operators.engines.transformers import CandidatesLM
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
    order = [entity_id for entity_id in behind.trie.nodes_of if entity_id != "Q90"]
    distractors = order if search == "given" else ()
    return PreferRequest("x", behind.token_ids, behind.trie, ending, "Q90", search, n, distractors)


def close(entity_: EntityScore, other: EntityScore) -> bool:
    numbers = ((entity.logprob, entity.open_logprob) for entity in (entity_, other))
    is_same_label = (entity_.entity_id, entity_.label, entity_.n_tokens) == (
        other.entity_id,
        other.label,
        other.n_tokens,
    )
    return is_same_label and all(abs(a - b) < TOLERANCE for a, b in zip(*numbers, strict=True))


@pytest.mark.parametrize(("search", "n"), [("given", 9), ("exact", 3), ("optimal", 2)])
def test_preferences_equal_transformers(
    engine: VllmEngine, plain: CandidatesLM, tokenizer: Any, search: str, n: int
) -> None:
    request = asked(tokenizer, search, n)
    (of_vllm,), (expected,) = engine.preferences([request]), plain.preferences([request])
    assert close(of_vllm.answer, expected.answer)
    assert len(of_vllm.distractors) == len(expected.distractors)
    assert all(map(close, of_vllm.distractors, expected.distractors))


def test_beams_equal_transformers(engine: VllmEngine, plain: CandidatesLM, tokenizer: Any) -> None:
    request = BeamsRequest("x", tokenizer(CLOZE).input_ids, 3, max_tokens=3, top_tokens=5)
    (of_vllm,), (expected,) = engine.beams([request]), plain.beams([request])
    assert list(of_vllm.texts) == list(expected.texts)
    assert list(of_vllm.logprobs) == pytest.approx(expected.logprobs, abs=TOLERANCE)
    assert list(of_vllm.top_tokens) == list(expected.top_tokens)


def logprob(text: Sequence[int], token: int) -> float:
    """What a model of no sense says of a token behind a text: whole numbers, exact in float32."""
    return -float(seeds.key(*text, token) % 1000)


def read_nodes(branches: Sequence[Branch]) -> list[BranchLogprobs]:
    return [
        BranchLogprobs(
            [logprob(text, token) for token in tokens],
            log_sum(logprob(text, token) for token in ending),
        )
        for text, tokens, ending in branches
    ]


def read_rows(jobs: Iterable[Any], _capacity: int) -> Iterator[tuple[Any, Any]]:
    """As vLLM's model runner V2, whose cache holds every second prompt; others have padded rows."""
    for job in jobs:
        parameters, ids = job.parameters, list(job.token_ids)
        rows, start = parameters.prompt_logprob_token_ids, parameters.prompt_logprob_start
        assert len(rows) == len(ids) - 1 - start
        values = None
        if parameters.skip_reading_prefix_cache or len(ids) % 2:
            values = np.full((len(rows), max(map(len, rows))), -np.inf, dtype=np.float32)
            for i, tokens in enumerate(rows):
                text = ids[: start + i + 1]
                values[i, : len(tokens)] = [logprob(text, token) for token in tokens]
        yield job.purpose, SimpleNamespace(prompt_token_id_logprobs=values)


@pytest.mark.parametrize(("search", "n"), [("given", 9), ("exact", 3), ("optimal", 2)])
def test_preferences_by_rows_of_prompts_are_those_by_nodes(
    engine: VllmEngine, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, search: str, n: int
) -> None:
    monkeypatch.setattr(engine, "reads_rows", True)
    monkeypatch.setattr(engine, "_outputs", read_rows)
    request = asked(tokenizer, search, n)
    assert [*engine.preferences([request])] == [*preferences([request], read_nodes)]

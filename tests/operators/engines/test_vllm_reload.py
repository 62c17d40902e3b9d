"""vLLM takes the weights of another checkpoint: its answers are those of a new engine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from factsweep.operators.engines.protocol import Request, Sampling, Start
from factsweep.operators.engines.vllm import VllmEngine
from factsweep.operators.prompts.tokens import encode

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # vLLM looks through all of torch
]

SAMPLING = Sampling(max_tokens=8, stop=("\n",), logprobs=True)
PROMPTS = ["The capital of France is", "1 2 3 4 5", "Where is Oslo?\nA: " * 20]
SIZE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.fixture(scope="module")
def save(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Start]:
    """Save random weights: a head that shares those of the embeddings, and biases."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(vocab_size=len(tokenizer), tie_word_embeddings=True, **SIZE)

    def save_model(seed: int, without: str = "") -> Start:
        folder = tmp_path_factory.mktemp(f"seed-{seed}")
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
        for weights in model.parameters():
            weights.data = weights.data * 6 + 0.3 * torch.randn_like(weights) * (weights.dim() == 1)
        state = {name: weights for name, weights in model.state_dict().items() if name != without}
        model.save_pretrained(folder, state_dict=state)
        tokenizer.save_pretrained(folder)
        # bfloat16, though the file has float32: biases are rounded as a new engine rounds them.
        options = {"max_num_batched_tokens": 512}
        return Start(str(folder), None, "bfloat16", max_model_len=512, arguments=options)

    return save_model


def answers(engine: VllmEngine, tokenizer: Any) -> dict[str, tuple[Any, int]]:
    """The text, the number of tokens, the log-probability, and the cached tokens of each prompt."""
    ids = encode(tokenizer, PROMPTS)
    requests = [Request(p, i, SAMPLING) for p, i in zip(PROMPTS, ids, strict=True)]
    found = engine.answers(iter(requests))
    return {answer.request_id: (answer.completions, answer.n_cached_tokens) for answer in found}


def test_reloaded_engine_answers_as_a_new_one_and_lacks_no_weight(
    save: Callable[..., Start], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, new = VllmEngine(save(1)), save(2)
    old_answers = answers(engine, tokenizer)
    assert engine.reload(new) is None
    reloaded_answers = answers(engine, tokenizer)
    fresh = VllmEngine(new)
    assert reloaded_answers == answers(fresh, tokenizer)
    assert reloaded_answers != old_answers
    assert answers(engine, tokenizer)[PROMPTS[2]][1] > 0, "the cache is used again"
    for other in (replace(new, dtype="float32"), replace(new, adapter=Path("adapter"))):
        assert "arguments" in str(engine.reload(other))
    # A whole layer, and a part of one that is loaded of three: each engine fails once.
    norm, key = "model.norm.weight", "model.layers.1.self_attn.k_proj.weight"
    assert "norm" in str(engine.reload(save(3, without=norm)))
    assert "qkv_proj" in str(fresh.reload(save(3, without=key)))
    assert "two models" in str(engine.reload(new))

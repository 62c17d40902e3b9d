"""vLLM takes the weights of another checkpoint: its answers are those of a new engine."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from factsweep.operators.engines.protocol import Request, Sampling, Start
from factsweep.operators.engines.vllm import VllmEngine
from factsweep.operators.prompts.tokens import encode

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SAMPLING = Sampling(max_tokens=8, stop=("\n",), logprobs=True)
PROMPTS = ["The capital of France is", "1 2 3 4 5", "Where is Oslo?\nA: " * 20]
OTHER_ARGUMENTS: list[dict[str, Any]] = [{"dtype": "float32"}, {"adapter": Path("adapter")}]
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


def answers(engine: VllmEngine, ids: Sequence[list[int]]) -> dict[str, tuple[Any, int]]:
    """The text, the number of tokens, the log-probability, and the cached tokens of each prompt."""
    requests = [Request(p, i, SAMPLING) for p, i in zip(PROMPTS, ids, strict=True)]
    return {
        answer.request_id: (answer.completions, answer.n_cached_tokens)
        for answer in engine.answers(iter(requests))
    }


def reload_weights(
    old: Start, new: Start, failing: Sequence[Start], ids: Sequence[list[int]]
) -> tuple[list[dict[str, tuple[Any, int]]], list[str | None]]:
    """The answers of an engine before and after, then of a new one; what each reload returns."""
    engine = VllmEngine(old)
    before = answers(engine, ids)
    reasons = [engine.reload(new)]
    after, again = answers(engine, ids), answers(engine, ids)
    fresh = VllmEngine(new)
    expected = answers(fresh, ids)
    reasons += [
        *(engine.reload(replace(new, **change)) for change in OTHER_ARGUMENTS),
        engine.reload(failing[0]),
        fresh.reload(failing[1]),
        engine.reload(new),
    ]
    return [before, after, again, expected], reasons


def test_reloaded_engine_answers_as_a_new_one_and_lacks_no_weight(
    save: Callable[..., Start], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])  # for the other process
    # A whole layer, and a part of one that is loaded of three.
    norm, key = "model.norm.weight", "model.layers.1.self_attn.k_proj.weight"
    failing = [save(3, without=norm), save(3, without=key)]
    # A process of its own: an engine that ends takes the process groups of others with it.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        future = pool.submit(reload_weights, save(1), save(2), failing, encode(tokenizer, PROMPTS))
        (before, after, again, expected), reasons = future.result()
    assert after == expected != before
    assert again[PROMPTS[2]][1] > 0, "the cache is used again"
    assert reasons[0] is None
    faults = ["arguments", "arguments", "norm", "qkv_proj", "two models"]
    assert [word in str(text) for word, text in zip(faults, reasons[1:], strict=True)] == [True] * 5

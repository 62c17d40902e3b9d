"""Greedy, against full passes over each prompt by itself: no cache, no batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from factsweep.operators.engines.protocol import Request, Sampling
from factsweep.operators.engines.transformers.greedy import Greedy
from factsweep.operators.errors import InputError
from tests.tiny_models import save

PROMPTS = ("Rome is", "Oslo in", "The capital", "a", "b", "The capital of Italy is a town")


@pytest.fixture(params=["gpt-neox", "llama", "qwen"])
def model_and_tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    folder = save(request.param, tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    torch.manual_seed(1)
    for parameter in model.parameters():  # as they are made, the models repeat one token
        parameter.data += torch.randn_like(parameter) * 0.2
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def plain(model: Any, tokenizer: Any, ids: list[int], max_tokens: int) -> str:
    written: list[int] = []
    with torch.inference_mode():
        while len(written) < max_tokens:
            logits = model(torch.tensor([ids + written]), use_cache=False).logits[0, -1]
            if (token := int(logits.argmax())) == tokenizer.eos_token_id:
                break
            written.append(token)
    return str(tokenizer.decode(written))


def test_greedy_equals_full_passes_until_a_stop(model_and_tokenizer: tuple[Any, Any]) -> None:
    model, tokenizer = model_and_tokenizer
    ids = {prompt: tokenizer(prompt).input_ids for prompt in PROMPTS}
    expected = {prompt: plain(model, tokenizer, ids[prompt], 8) for prompt in PROMPTS}
    assert len(set(expected.values())) > 2
    stop = next(text[2] for text in expected.values() if len(text) > 2)
    for sampling in (Sampling(8, ()), Sampling(8, (stop,)), Sampling(3, ())):
        requests = (Request(prompt, ids[prompt], sampling) for prompt in PROMPTS)
        for answer in Greedy(model, tokenizer).answers(requests):
            text = plain(model, tokenizer, ids[answer.request_id], sampling.max_tokens)
            (completion,) = answer.completions
            assert completion.text == (text.split(stop)[0] if sampling.stop else text)
            has_ended = completion.n_tokens < sampling.max_tokens or stop in text
            assert (completion.finish_reason == "stop") <= has_ended


def test_model_that_keeps_no_keys_is_refused(model_and_tokenizer: tuple[Any, Any]) -> None:
    model, tokenizer = model_and_tokenizer
    forward = model.forward
    model.forward = lambda **inputs: forward(**{**inputs, "use_cache": False})
    with pytest.raises(InputError, match="keeps no keys and values"):
        list(Greedy(model, tokenizer).answers([Request("a", [1, 2], Sampling(2, ()))]))

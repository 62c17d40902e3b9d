"""A model split over two of vLLM's workers, for real: a tiny Llama on two cores."""

import os
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.runs import run as runner
from factsweep.pipeline.stages.plan import planned

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def tiny_llama(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights with two KV heads, one for each worker."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two workers need two cores")
def test_tensor_parallel_2_answers_every_prompt(tiny_llama: Path, tmp_path: Path) -> None:
    run = load(
        [
            *("model.source=path", f"model.id={tiny_llama}", "model.name=tiny-llama"),
            *("model.gguf_file=null", "model.tensor_parallel=2", "model.max_model_len=512"),
            *("benchmark.relations=[P36]", "benchmark.pairs_per_relation=2", "prompt=zero-shot"),
            *("decoding=greedy", "decoding.canary_prompts=0", "cluster.device=cpu"),
            *("metrics.n_draws=5", "metrics.n_rounds=2"),
            *(f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"),
        ]
    )
    metrics = runner.run(run)
    assert metrics.filter(metric="acc_at_1")["n_failed"].max() == 0
    (counts,) = planned(run).branches[0].answers.counts("generations").values()
    assert counts["prompts at tensor_parallel=2"] == counts["prompts"]

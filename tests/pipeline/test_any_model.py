"""Any model: a folder without a file in conf/model/ runs on a slice, through the real engines."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import factsweep
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.machine import processor
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import build_plan
from tests.messages import naming

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_ray")]

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny_models.py"))
SLICE = (
    "benchmark.relations=[P36]",
    "benchmark.pairs_per_relation=3",
    "benchmark.names_per_subject=1",
    "decoding.samples.n_prompts=0",
    "decoding.canary_prompts=0",
    "metrics.n_draws=20",
    "metrics.n_rounds=2",
    "cluster.num_cpus=2",
    "cluster.cpu_kvcache_gib=1",
)


def answered(folder: Path, stage: str, *overrides: str) -> pl.DataFrame:
    """The answers of `factsweep run` with the model in the folder."""
    places = (f"artifacts={folder}/artifacts", f"results={folder}/results")
    assert main(["run", f"model={folder}/mine", *SLICE, *places, *overrides]) == 0
    return pl.read_parquet(f"{folder}/artifacts/{stage}/*/{stage}/*.parquet")


@pytest.mark.engine
def test_folder_of_a_decoder_that_thinks_keeps_each_thought_beside_its_answer(
    tmp_path: Path,
) -> None:
    opens = "{{ messages[0]['content'] }}{% if enable_thinking %}<think>{% endif %}"
    TINY["save"]("qwen", tmp_path / "mine", chat_template=opens)
    options = ("prompt=zero-shot", "model.max_model_len=512", "model.engine.max_num_seqs=4")
    chat = ("model.chat_template=true", "model.reasoning_parser=qwen3")
    thinks = ("model.thinking=on", "decoding.thinking_tokens=9")
    answers = answered(tmp_path, "generations", *options, *chat, *thinks)
    thoughts = pl.read_parquet(f"{tmp_path}/artifacts/generations/*/thoughts/*.parquet")
    assert thoughts["prompt_id"].to_list() == answers["prompt_id"].to_list()
    assert thoughts["n_tokens"].explode().is_between(1, 9).all()
    (results,) = tmp_path.glob("results/*")
    read = factsweep.load(results, artifacts=tmp_path / "artifacts").answers()
    assert read["thought"].null_count() == 0
    assert (Path(results) / "index.html").read_text().count("did not end by themselves") >= 1


@pytest.mark.engine
def test_adapters_of_a_study_answer_as_the_models_that_they_are_merged_into(tmp_path: Path) -> None:
    """And as one that is asked alone, in artifacts of the same name; a wrong one harms none."""
    base, merged = TINY["save"]("llama", tmp_path / "base/mine"), tmp_path / "merged/mine"
    tuned = TINY["save_adapter"](base, tmp_path / "tuned", merged)
    other = TINY["save_adapter"](base, tmp_path / "other", seed=1)
    options = ("prompt=zero-shot", "model.max_model_len=512", "model.dtype=float32")
    answers_alone = [
        answered(folder, "generations", *options, *adapter_options)
        .sort("prompt_id")["text"]
        .to_list()
        for folder, adapter_options in (
            (merged.parent, ()),
            (base.parent, (f"model.adapter={other}",)),
        )
    ]
    store, results = tmp_path / "together", tmp_path / "results"
    places = (f"artifacts={store}", f"results={results}")
    wrong = TINY["save_adapter"](TINY["save"]("llama-16", tmp_path / "llama"), tmp_path / "wrong")
    study_options = (f"model.adapter={tuned},{wrong},{other}", "model.replicas.max=1")
    assert main(["study", "both", f"model={base}", *SLICE, *places, *options, *study_options]) == 2
    answers = {
        item.name: pl.read_parquet(item / "generations").sort("prompt_id")["text"].to_list()
        for item in (store / "generations").iterdir()
    }
    (name,) = (item.name for item in (base.parent / "artifacts/generations").iterdir())
    assert answers.pop(name) == answers_alone[1]
    assert list(answers.values()) == answers_alone[:1]
    assert answers_alone[0] != answers_alone[1]
    records = [json.loads(item.read_text()) for item in results.glob("both/*/run.json")]
    assert {item["run"]["model"]["name"] for item in records} == {"mine+tuned", "mine+other"}


@pytest.mark.engine
def test_int8_copy_scores_texts_as_a_plain_pass_that_rounds_as_it_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Products of integers are exact: what is left is float32, of sums over some 90 bytes.

    On x86-64 without VNNI they overflow, and such weights are refused.
    """
    base = TINY["save"]("llama", tmp_path / "base")
    (tmp_path / "mine").mkdir()
    model = f"model={TINY['save_int8'](base, tmp_path / 'mine')}"
    small_options = (
        "benchmark.relations=[P17]",
        "benchmark.pairs_per_relation=2",
        "metrics.n_rounds=2",
    )
    places = (f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results", "run_name=int8")
    options = [model, "benchmark=probelm-mini", *small_options, *places, "model.dtype=float32"]
    options += ["cluster.num_cpus=2", "cluster.cpu_kvcache_gib=1", "decoding.canary_prompts=0"]
    flags = processor.flags()
    if "sse2" in flags and not flags & {"avx512_vnni", "avx_vnni", "amx_int8"}:
        assert main(["plan", *options]) == 2
        assert re.search(naming(tmp_path / "mine", "VNNI", "use a GPU"), capfd.readouterr().err)
        return
    if "amx_tile" in flags:  # vLLM's kernels for AMX take no float32
        assert main(["plan", *options]) == 2
        assert re.search(naming("AMX", "model.dtype=bfloat16"), capfd.readouterr().err)
        assert main(["run", *options, "model.dtype=bfloat16"]) == 0
        return
    assert main(["run", *options]) == 0
    assert "compressed-tensors, 8 bits" in (tmp_path / "results/int8/index.html").read_text()
    assert main(["plan", *options]) == 0
    (branch,) = build_plan(load(options)).branches
    full_model = AutoModelForCausalLM.from_pretrained(base)
    off = []
    for shard in branch.prompts.shards("prompts"):
        scores_by_prompt = dict(
            branch.answers.read("scores", shard)["prompt_id", "logprob"].iter_rows()
        )
        texts = with_text(branch.prompts, "prompts", shard)["prompt_id", "text"]
        for prompt_id, text in texts.iter_rows():
            ids = torch.tensor(AutoTokenizer.from_pretrained(base)([text]).input_ids)
            scores = [total(network, ids) for network in (TINY["as_int8"](base), full_model)]
            assert scores_by_prompt[prompt_id] == pytest.approx(scores[0], abs=1e-3)
            off.append(abs(scores_by_prompt[prompt_id] - scores[1]))
    assert max(off) > 0.01  # of the whole weights


def total(model: Any, ids: torch.Tensor) -> float:
    """The log-probability of a text, but of its first token."""
    with torch.inference_mode():
        logprobs = model(ids).logits[0, :-1].log_softmax(-1)
    return float(logprobs.gather(-1, ids[0, 1:, None]).sum())


@pytest.mark.engine
def test_folder_of_an_encoder_runs_through_the_masked_engine(tmp_path: Path) -> None:
    TINY["save"]("bert", tmp_path / "mine")
    assert answered(tmp_path, "masked")["probability"].is_between(0, 1).all()

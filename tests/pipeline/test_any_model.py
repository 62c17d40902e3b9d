"""Any model: a folder without a file in conf/model/ runs on a slice, through the real engines."""

import json
import re
import runpy
from pathlib import Path

import polars as pl
import pytest

from factsweep.pipeline import api
from factsweep.pipeline.cli import main
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
def test_folder_of_a_decoder_runs_through_vllm(tmp_path: Path) -> None:
    """GPT-NeoX; that of Llama is what an adapter is compared with below."""
    TINY["save"]("gpt-neox", tmp_path / "mine")
    given = ("prompt=zero-shot", "model.max_model_len=512", "model.engine.max_num_seqs=4")
    assert answered(tmp_path, "generations", *given)["text"].null_count() == 0


@pytest.mark.engine
def test_folder_of_a_decoder_that_thinks_keeps_each_thought_beside_its_answer(
    tmp_path: Path,
) -> None:
    opens = "{{ messages[0]['content'] }}{% if enable_thinking %}<think>{% endif %}"
    TINY["save"]("qwen", tmp_path / "mine", chat_template=opens)
    given = ("prompt=zero-shot", "model.max_model_len=512", "model.engine.max_num_seqs=4")
    chat = ("model.chat_template=true", "model.reasoning_parser=qwen3")
    thinks = ("model.thinking=on", "decoding.thinking_tokens=9")
    said = answered(tmp_path, "generations", *given, *chat, *thinks)
    thoughts = pl.read_parquet(f"{tmp_path}/artifacts/generations/*/thoughts/*.parquet")
    assert thoughts["prompt_id"].to_list() == said["prompt_id"].to_list()
    assert thoughts["n_tokens"].explode().is_between(1, 9).all()
    (results,) = tmp_path.glob("results/*")
    read = api.load(results, artifacts=tmp_path / "artifacts").answers()
    assert read["thought"].null_count() == 0
    assert (Path(results) / "index.html").read_text().count("did not end by themselves") >= 1


@pytest.mark.engine
def test_adapters_of_one_engine_answer_as_the_models_that_they_are_merged_into(
    tmp_path: Path,
) -> None:
    """And as one that is asked alone, in artifacts of the same name; a wrong one harms none."""
    base, merged = TINY["save"]("llama", tmp_path / "base/mine"), tmp_path / "merged/mine"
    tuned = TINY["save_adapter"](base, tmp_path / "tuned", merged)
    other = TINY["save_adapter"](base, tmp_path / "other", seed=1)
    given = ("prompt=zero-shot", "model.max_model_len=512", "model.dtype=float32")
    alone = [
        answered(folder, "generations", *given, *further).sort("prompt_id")["text"].to_list()
        for folder, further in (
            (merged.parent, ()),
            (base.parent, (f"model.adapter={other}",)),
        )
    ]
    together, results = tmp_path / "together", tmp_path / "results"
    places = (f"artifacts={together}", f"results={results}")
    wrong = TINY["save_adapter"](TINY["save"]("llama-16", tmp_path / "llama"), tmp_path / "wrong")
    both = (f"model.adapter={tuned},{wrong},{other}", "model.replicas.max=1")
    assert main(["study", "both", f"model={base}", *SLICE, *places, *given, *both]) == 2
    said = {
        each.name: pl.read_parquet(each / "generations").sort("prompt_id")["text"].to_list()
        for each in (together / "generations").iterdir()
    }
    (name,) = (each.name for each in (base.parent / "artifacts/generations").iterdir())
    assert said.pop(name) == alone[1]
    assert list(said.values()) == alone[:1]
    assert alone[0] != alone[1]
    assert len(list(results.glob("both/*/logs/engine-*.log"))) == 1  # it was loaded once
    named = [json.loads(each.read_text()) for each in results.glob("both/*/run.json")]
    assert {each["run"]["model"]["name"] for each in named} == {"mine+tuned", "mine+other"}


@pytest.mark.engine
def test_folder_of_an_encoder_runs_through_the_masked_engine(tmp_path: Path) -> None:
    TINY["save"]("bert", tmp_path / "mine")
    assert answered(tmp_path, "masked")["probability"].is_between(0, 1).all()


@pytest.mark.engine
def test_decoder_that_vllm_cannot_serve_ends_in_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    TINY["save"]("llama-16", tmp_path / "mine")
    places = (f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results")
    given = ("prompt=zero-shot", "model.max_model_len=512", "cluster.device=cpu")
    assert main(["run", f"model={tmp_path}/mine", *SLICE, *places, *given]) == 1
    said = capfd.readouterr().err.splitlines()
    (last,) = (line for line in said if line.startswith("factsweep: "))
    assert re.search(naming("mine", "2 engines in a row"), last)
    assert "RuntimeError: Unsupported CPU attention configuration: head_dim=16" in last

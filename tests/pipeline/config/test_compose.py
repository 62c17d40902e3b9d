"""What the overrides of a command compose."""

from pathlib import Path

import polars as pl
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import composed
from tests.pipeline.inputs.test_files import FORMATS


def test_a_file_of_facts_is_a_benchmark_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "my facts.csv"
    file.write_text("relation,template,subject,object\n")
    rows = tmp_path / "rows.parquet"
    rows.write_bytes(b"")
    for given, name, path in (
        ([f"benchmark={file}"], "my facts", file),
        ([f"benchmark.path={file}"], "my facts", file),
        ([f"benchmark.path='{file}'", "benchmark.name=mine"], "mine", file),
        ([f"benchmark={rows}"], "rows", rows),
        ([f"benchmark.path={rows}"], "myriadlama-mini", rows),
        ([f"benchmark.path={file}", "benchmark=myriadlama"], "myriadlama", file),
    ):
        found = composed(given)["benchmark"]
        assert (found["name"], found["path"]) == (name, str(path)), given


def test_a_plain_table_is_a_benchmark_of_its_name_whatever_its_format(tmp_path: Path) -> None:
    fact = {"relation": "capital", "template": "[X] [Y]", "subject": "Peru", "object": "Lima"}
    for name, written in FORMATS.items():
        path = tmp_path / name
        path.write_bytes(written(pl.DataFrame([fact])))
        for key in ("benchmark", "benchmark.path"):
            config = composed([f"{key}={path}"])
            assert config["benchmark"]["name"] == name.partition(".")[0], name
            assert config["prompt"]["shots"] == 0
            assert config["decoding"]["samples"]["n_answers"] == 4


def test_a_file_in_the_layout_of_a_set_is_read_for_the_usual_benchmark(tmp_path: Path) -> None:
    row = pl.DataFrame([{"rel_uri": "P36", "sub_ent": "Peru", "obj_ents": ["Lima"]}])
    for name in ("rows.parquet", "rows.jsonl", "rows.json", "rows.arrow"):
        path = tmp_path / name
        path.write_bytes(next(write for n, write in FORMATS.items() if path.suffix in n)(row))
        assert composed([f"benchmark.path={path}"])["benchmark"]["name"] == "myriadlama-mini"


def test_a_file_of_facts_is_sampled_in_proportion_to_the_facts(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("relation,template,subject,object\n")
    for given, n_prompts, n_answers in (
        ([], 10_000, 4),
        (["decoding=greedy"], 0, 100),
        (["decoding=default"], 10_000, 100),
    ):
        found = composed([f"benchmark.path={file}", *given])["decoding"]["samples"]
        assert (found["n_prompts"], found["n_answers"]) == (n_prompts, n_answers), given


def test_composed_equals_what_hydra_composes_of_all_at_once(subtests: pytest.Subtests) -> None:
    """Files are composed once for all runs that choose the same, and values set afterwards."""
    for given in (
        ["seed=1", "seed=2"],
        ["prompt=zero-shot", "run_name='a b'", "prompt.style=question", "log=null"],
        ["seed=3", "model=gpt2", "benchmark.relations=[P17,P36]", "max_cost=1.5"],
        ["++model.engine.max_num_seqs=4", "model.revision=abc", "~decoding.stop"],
        ["hydra.run.dir=x", "decoding.samples={n_prompts: 3}", "cluster.launch=null"],
        ["benchmark=kamel-mini", "metrics.n_rounds=7", "decoding.max_tokens=5"],
        ["prompt=1-shot", "benchmark=kamel-mini", "prompt.shots=2"],
        ["benchmark=distractors-mini", "prompt=optimal", "prompt.n=7", "sweep=demo"],
    ):
        with subtests.test(given=given):
            with initialize_config_dir(str(folders.CONF), version_base="1.3"):
                plain = OmegaConf.to_container(compose("config", overrides=given), resolve=True)
            assert composed(given) == plain
    assert composed([])["seed"] == 0


def test_file_of_ones_own_that_changes_is_composed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match="mine"):
        composed(["matching=mine"])
    file = tmp_path / "matching" / "mine.yaml"
    file.parent.mkdir()
    for pipeline in ("en_core_web_sm", "a_longer_name"):
        file.write_text(f"defaults: [default]\npipeline: {pipeline}\n")
        assert composed(["matching=mine", "seed=1"])["matching"]["pipeline"] == pipeline
    file = tmp_path / "prompt" / "two.yaml"
    file.parent.mkdir()
    for text, shots in (("defaults: [4-template]\nshots: 2\n", 2), ("shots: 3\n", 3)):
        file.write_text(text)
        assert composed(["prompt=two", "seed=1"])["prompt"]["shots"] == shots


def test_field_that_is_there_is_not_added_once_more() -> None:
    with pytest.raises(InputError, match=r"\+seed=3"):
        composed(["seed=2", "+seed=3"])

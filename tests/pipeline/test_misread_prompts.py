"""Tokenizers and templates that change a prompt: each verb refuses them before an engine starts."""

import json
import re
import runpy
from pathlib import Path

import pytest
from tokenizers import Tokenizer, processors

from factsweep.pipeline.cli import main
from tests.messages import naming

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny_models.py"))
FACTS = "relation,template,subject,object\ncapital,The capital of [X] is [Y].,France,Paris\n"
TODAY = "Today is {{ strftime_now('%d %B %Y') }}. {{ messages[0].content }}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some facts beside a model of good tokens, one that loses blanks, and one that ends texts."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "facts.csv").write_text(FACTS)
    TINY["save"]("llama", folder / "good", chat_template=TODAY)
    for name in ("lost", "ended"):
        TINY["save"]("llama", folder / name)
    path = folder / "lost/tokenizer_config.json"
    words = {"tokenizer_class": "LlamaTokenizerFast"}
    path.write_text(json.dumps(json.loads(path.read_text()) | words))
    file = str(folder / "ended/tokenizer.json")
    backend = Tokenizer.from_file(file)
    ends = [("</s>", 0)]
    backend.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=ends)
    backend.save(file)
    return folder


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("lost", ["LlamaTokenizer", "loses blanks", "tokenizer_class"]),
        ("ended", ["</s>", "add_eos_token"]),
    ],
)
def test_plan_every_method_refuses_tokens_that_read_otherwise(
    folder: Path,
    tmp_path: Path,
    subtests: pytest.Subtests,
    capsys: pytest.CaptureFixture[str],
    model: str,
    words: list[str],
) -> None:
    model_override, facts = f"model={folder}/{model}", f"benchmark={folder}/facts.csv"
    served = ("model=endpoint", "model.id=x", "model.endpoint=http://127.0.0.1:9/v1")
    for overrides in (
        [model_override, facts, "decoding.engine=fake"],
        [model_override, facts, "decoding.engine=fake", "budget=100%"],
        [
            model_override,
            "benchmark=kamel-mini",
            "benchmark.relations=[P103]",
            "decoding.engine=fake",
        ],
        [model_override, "benchmark=probelm-mini", "decoding.scorer=fake"],
        [model_override, "benchmark=distractors-mini", "decoding.comparer=fake"],
        [*served, facts, f"model.tokenizer={folder}/{model}"],
    ):
        with subtests.test(overrides=overrides):
            assert main(["plan", *overrides, f"artifacts={tmp_path}"]) == 2
            assert re.search(naming(*words), capsys.readouterr().err)


def test_doctor_tokens_that_read_otherwise_fail(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = (f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results")
    overrides = (f"benchmark={folder}/facts.csv", "decoding.engine=fake", *places)
    states = {}
    for model in ("good", "lost"):
        main(["doctor", f"model={folder}/{model}", *overrides, "--json"])
        findings = json.loads(capsys.readouterr().out)
        states[model] = [finding["state"] for finding in findings if finding["check"] == "tokens"]
    assert states == {"good": ["holds"], "lost": ["fails"]}


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_run_tokens_that_read_otherwise_are_refused_and_a_date_is_named(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    places = (f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results")
    overrides = (f"benchmark={folder}/facts.csv", "decoding.engine=fake", *places)
    assert main(["run", f"model={folder}/ended", *overrides]) == 2
    assert "add_eos_token" in capfd.readouterr().err
    assert not list((tmp_path / "artifacts/generations").glob("*/generations/*.parquet"))
    assert main(["run", f"model={folder}/good", "model.chat_template=true", *overrides]) == 0
    log = capfd.readouterr().err
    assert "Today is 26 July 2024." in log
    assert "warning: the chat template" in log

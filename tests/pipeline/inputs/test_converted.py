"""Converted packages: named after what they are made of, and checked before they are used again."""

import importlib.util
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models

MODEL = replace(load([]).model, id="own-weights", gguf_file="model.gguf", dtype="float32")

Convert = Callable[..., Path]


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each GGUF file was converted: here that only copies it."""
    counts = Counter[str]()

    def convert(model: Model, folder: Path) -> None:
        counts[str(model.gguf_file)] += 1
        content = models._package(model).joinpath(str(model.gguf_file)).read_bytes()
        (folder / "model.safetensors").write_bytes(content)

    monkeypatch.setattr(models, "_convert", convert)
    return counts


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conversions: Counter[str]) -> Path:
    """The folder of an installed package with weights."""
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))
    folder = tmp_path / "site" / "own_weights"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for name in ("model.gguf", "other.gguf"):
        (folder / name).write_text(name)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.util.find_spec("own_weights")
    return folder


def folder(**changes: str) -> Path:
    return models.converted(replace(MODEL, **changes), "1.0")


def test_conversion_is_made_once(package: Path, conversions: Counter[str]) -> None:
    assert folder() == folder()
    assert conversions == {"model.gguf": 1}


@pytest.mark.parametrize("changes", [{"dtype": "bfloat16"}, {"gguf_file": "other.gguf"}])
def test_conversion_of_something_else_is_another(package: Path, changes: dict[str, str]) -> None:
    assert folder(**changes) != folder()


def test_conversion_of_changed_weights_is_another(package: Path) -> None:
    before, content = folder(), models.conversion(MODEL, "1.0")
    (package / "model.gguf").write_text("model.ggux")
    assert folder() != before
    assert models.conversion(MODEL, "1.0")["from"] != content["from"]
    assert models.conversion(MODEL, "1.0")["to"] != content["to"]


@pytest.mark.parametrize("library", ["gguf", "safetensors", "tokenizers", "torch", "transformers"])
def test_conversion_by_another_version_of_a_library_is_another(
    package: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    before, content = folder(), models.conversion(MODEL, "1.0")
    installed = models.versions

    def others(*names: str) -> dict[str, str]:
        return {name: "0.0" if name == library else now for name, now in installed(*names).items()}

    monkeypatch.setattr(models, "versions", others)
    assert folder() != before
    assert models.conversion(MODEL, "1.0")["by"] != content["by"]


def _changed(made: Path) -> None:
    (made / "model.safetensors").write_text("model.ggux")


def _added(made: Path) -> None:
    (made / "generation_config.json").write_text("{}")


def _without_record(made: Path) -> None:
    (made / ".converted").unlink()


def _empty(made: Path) -> None:
    for path in made.iterdir():
        path.unlink()


@pytest.mark.parametrize("damage", [_changed, _added, _without_record, _empty])
def test_conversion_that_is_damaged_is_made_anew(
    package: Path, conversions: Counter[str], damage: Callable[[Path], None]
) -> None:
    made = folder()
    damage(made)
    assert folder() == made
    assert conversions == {"model.gguf": 2}
    assert sorted(path.name for path in made.iterdir()) == [".converted", "model.safetensors"]
    assert [path.name for path in made.parent.iterdir()] == [made.name]


def test_conversion_that_fails_leaves_nothing(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(model: Model, folder: Path) -> None:
        (folder / "half").write_text("of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "_convert", fails)
    with pytest.raises(KeyboardInterrupt):
        folder()
    assert list((package.parents[1] / "home" / "models").iterdir()) == []

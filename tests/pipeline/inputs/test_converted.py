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
        content = models._package_folder(model).joinpath(str(model.gguf_file)).read_bytes()
        (folder / "model.safetensors").write_bytes(content)

    monkeypatch.setattr(models, "_convert_gguf", convert)
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
    return models.convert_package(replace(MODEL, **changes), "1.0")


def test_conversion_of_other_weights_is_another(package: Path) -> None:
    old_folder, content = folder(), models.conversion(MODEL, "1.0")
    assert len({old_folder, folder(dtype="bfloat16"), folder(gguf_file="other.gguf")}) == 3
    (package / "model.gguf").write_text("model.ggux")
    assert folder() != old_folder
    assert models.conversion(MODEL, "1.0")["from"] != content["from"]
    assert models.conversion(MODEL, "1.0")["to"] != content["to"]


@pytest.mark.parametrize("library", ["gguf", "safetensors", "tokenizers", "torch", "transformers"])
def test_conversion_by_another_version_of_a_library_is_another(
    package: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    old_folder, content = folder(), models.conversion(MODEL, "1.0")
    installed = models.versions

    def others(*names: str) -> dict[str, str]:
        return {
            name: "0.0" if name == library else version
            for name, version in installed(*names).items()
        }

    monkeypatch.setattr(models, "versions", others)
    assert folder() != old_folder
    assert models.conversion(MODEL, "1.0")["by"] != content["by"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").write_text("model.ggux"),
        lambda folder: (folder / "generation_config.json").write_text("{}"),
        lambda folder: (folder / ".converted").unlink(),
        lambda folder: [path.unlink() for path in folder.iterdir()],
    ],
    ids=["changed", "added", "without its record", "empty"],
)
def test_conversion_that_is_damaged_is_made_again(
    package: Path, conversions: Counter[str], damage: Callable[[Path], object]
) -> None:
    converted = folder()
    assert folder() == converted
    assert conversions == {"model.gguf": 1}
    damage(converted)
    assert folder() == converted
    assert conversions == {"model.gguf": 2}
    assert sorted(path.name for path in converted.iterdir()) == [".converted", "model.safetensors"]
    assert [path.name for path in converted.parent.iterdir()] == [converted.name]


def test_conversion_that_fails_leaves_nothing(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(model: Model, folder: Path) -> None:
        (folder / "half").write_text("of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "_convert_gguf", fails)
    with pytest.raises(KeyboardInterrupt):
        folder()
    assert list((package.parents[1] / "home" / "models").iterdir()) == []

"""What checkpoints of a model may differ in, so that one engine serves them all."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs.checkpoints import find_difference
from factsweep.pipeline.inputs.models import Weights

SHAPES = {"head": (4, 2), "norm": (2,)}


@pytest.fixture
def old(make_model: Callable[[str], Path]) -> Path:
    folder = make_model("step-1")
    write(folder, SHAPES)
    return folder


def write(folder: Path, shapes: Mapping[str, tuple[int, ...]], kind: str = "float32") -> None:
    values = np.random.default_rng(len(str(folder)))
    tensors = {name: values.random(shape).astype(kind) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")


def difference(old: Path, change: Callable[[Path], object]) -> str | None:
    new = old.with_name("step-2")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(old, new)
    change(new)
    model = replace(load(["model=smollm2-135m"]).model, source="path")
    return find_difference(*(Weights(replace(model, id=str(f)), "digest") for f in (old, new)))


def set_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_values_of_tensors_and_what_a_training_leaves_are_no_difference(old: Path) -> None:
    assert difference(old, lambda new: write(new, SHAPES)) is None
    assert difference(old, lambda new: (new / "trainer_state.json").write_text("{}")) is None
    assert difference(old, lambda new: set_config(new, _name_or_path="step-2")) is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda new: set_config(new, rope_theta=500_000), "config.json"),
        (lambda new: (new / "generation_config.json").write_text("{}"), "generation_config.json"),
        (lambda new: (new / "tokenizer.json").write_text("{}"), "tokenizer.json"),
        (lambda new: (new / "modeling.py").write_text(""), "modeling.py"),
        (lambda new: write(new, {"head": (4, 2)}), "tensor norm"),
        (lambda new: write(new, SHAPES | {"bias": (2,)}), "tensor bias"),
        (lambda new: write(new, SHAPES | {"head": (2, 4)}), "tensor head"),
        (lambda new: write(new, SHAPES, "float16"), "tensor head"),
        (lambda new: (new / "model.safetensors").rename(new / "model.bin"), "safetensors"),
    ],
)
def test_any_other_difference_of_two_checkpoints_is_named(
    old: Path, change: Callable[[Path], object], named: str
) -> None:
    assert named in str(difference(old, change))

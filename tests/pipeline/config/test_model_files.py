"""Incomplete folders of models are refused, with the missing file."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.model_files import check_folder, check_pointers, check_tokenizer
from tests.messages import naming

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 135\n"
INDEX, FIRST, SECOND = (
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of two shards."""
    for number, shard in enumerate((FIRST, SECOND)):
        save_file({f"layer.{number}": np.zeros(4, np.float32)}, tmp_path / shard)
    shards = {"layer.0": FIRST, "layer.1": SECOND}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": shards}))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def lacking(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return remove


def holding(name: str, content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(content)

    return write


def cut(folder: Path) -> None:
    content = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(content[:-4])


def as_adapter(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lacking(SECOND), [SECOND, "missing", "copy it"]),
        (lacking(INDEX), [INDEX, "missing", "copy it"]),
        (lacking(INDEX, FIRST), [INDEX, FIRST, "copy them"]),
        (lacking("config.json"), ["config.json", "copy it"]),
        (as_adapter, ["adapter", "model=org/base", "model.adapter="]),
        (cut, [SECOND, "cut off", "copy it again"]),
        (holding(INDEX, "{"), [INDEX, "copy it again"]),
        (holding(SECOND, POINTER), [SECOND, "git-lfs", "lfs pull"]),
        (holding("config.json", POINTER), ["config.json", "lfs pull"]),
        (holding("tokenizer.json", POINTER), ["tokenizer.json", "lfs pull"]),
    ],
)
def test_check_folder_not_copied_whole_is_refused_by_what_is_missing(
    folder: Path, change: Callable[[Path], None], words: list[str]
) -> None:
    check_folder(folder, needs_weights=True)
    change(folder)
    with pytest.raises(InputError, match=naming(*words)) as refusal:
        check_folder(folder, needs_weights=True)
    assert not re.search("billions_of_parameters", str(refusal.value))


def test_check_folder_takes_what_no_engine_reads_as_it_is(folder: Path) -> None:
    for name in ("pytorch_model.bin", "consolidated.safetensors", "README.md"):
        (folder / name).write_text(POINTER)
    check_folder(folder, needs_weights=True)
    (folder / SECOND).unlink()
    check_folder(folder, needs_weights=False)


def test_check_tokenizer_without_a_vocabulary_is_refused(folder: Path) -> None:
    check_tokenizer(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=naming(folder, "tokenizer.json", "copy")):
        check_tokenizer(folder)
    (folder / "vocab.txt").write_text("[PAD]")
    check_tokenizer(folder)


def test_check_pointers_adapter_is_looked_at_too(folder: Path) -> None:
    (folder / "adapter_model.safetensors").write_text(POINTER)
    with pytest.raises(InputError, match=naming("adapter_model.safetensors", "lfs pull")):
        check_pointers(folder)


def test_check_pointers_command_is_one_that_a_shell_takes(folder: Path) -> None:
    spaced = folder.rename(folder.with_name("my model"))
    (spaced / "config.json").write_text(POINTER)
    with pytest.raises(InputError, match=naming(f"git -C '{spaced}' lfs pull")):
        check_folder(spaced, needs_weights=True)

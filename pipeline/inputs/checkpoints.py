"""Checkpoints of one model: folders that differ in the numbers of their weights alone."""

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from factsweep.pipeline.config.model_files import CONFIGURATION_FILES
from factsweep.pipeline.config.model_metadata import headers
from factsweep.pipeline.inputs import digests, models
from factsweep.pipeline.inputs.models import Weights

_READ = (*CONFIGURATION_FILES, "*.py")
_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
_UNREAD = (*_SAFETENSORS, "trainer_state.json")  # their shards, their training
_NAME = "_name_or_path"  # of config.json: where its training began


def find_difference(old: Weights, new: Weights) -> str | None:
    """What two models have in different ways, apart from the values of their tensors; or null.

    Only safetensors are compared, by names, shapes and types; other weights count as different.

    Raises:
        InputError: the hub does not give a file.
    """
    folders = [_folder(weights) for weights in (old, new)]
    if not all(any((folder / name).is_file() for name in _SAFETENSORS) for folder in folders):
        return "its weights are no safetensors"
    for noun, read in (("file", _read_files), ("tensor", _read_tensors)):
        old_content, new_content = map(read, folders)
        for name in sorted(old_content.keys() | new_content.keys()):
            if old_content.get(name) != new_content.get(name):
                return f"{noun} {name} differs"
    return None


def _folder(weights: Weights) -> Path:
    commit = weights.revision if weights.model.source == "hub" else None
    return models.fetch_files(models.location(weights), commit, (*_READ, "*.safetensors"))


def _read_files(folder: Path) -> dict[str, Any]:
    """The contents of the files that an engine reads, by their names."""
    contents: dict[str, Any] = {}
    for name, path in digests.list_files(folder).items():
        if name not in _UNREAD and any(fnmatchcase(name, pattern) for pattern in _READ):
            contents[name] = path.read_bytes()
    if "config.json" in contents:
        config = json.loads(contents["config.json"])
        contents["config.json"] = {k: v for k, v in config.items() if k != _NAME}
    return contents


def _read_tensors(folder: Path) -> dict[str, Any]:
    """The type and the shape of each tensor."""
    files = headers(str(folder), None).files_metadata.values()
    return {
        name: (str(tensor.dtype), tuple(tensor.shape))
        for file in files
        for name, tensor in file.tensors.items()
    }

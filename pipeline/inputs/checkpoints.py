"""Checkpoints of one model: folders that differ in the numbers of their weights alone."""

import json
from pathlib import Path
from typing import Any

from factsweep.pipeline.config.model_metadata import headers
from factsweep.pipeline.inputs import digests, hub, models
from factsweep.pipeline.inputs.models import Weights

# What an engine reads beside the weights: configurations, tokenizers, code.
_READ = (".json", ".jinja", ".model", ".py", ".tiktoken", ".txt")
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
    place = models.location(weights)
    if weights.model.source != "hub":
        return Path(place)
    files = [f"*{suffix}" for suffix in (*_READ, ".safetensors")]
    fix = "check the network, and HF_TOKEN"
    return hub.snapshot(place, weights.revision, files, "model.id", fix)


def _read_files(folder: Path) -> dict[str, Any]:
    """The contents of the files that an engine reads, by their names."""
    contents: dict[str, Any] = {}
    for name, path in digests.list_files(folder).items():
        if name.endswith(_READ) and name not in _UNREAD:
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

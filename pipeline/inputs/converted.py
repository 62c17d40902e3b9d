"""A package's GGUF file as a folder of safetensors, which engines load: made once, and checked.

The folder is named after the file's content, the type of the weights and the libraries that
convert. What they made of it is recorded with it: a folder that holds anything else is made anew.
"""

import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.inputs import digests
from factsweep.pipeline.machine.software import versions

_LIBRARIES = ("gguf", "safetensors", "tokenizers", "torch", "transformers")
_RECORD = ".converted"  # hidden: no part of the model


def content(model: Model, version: str) -> dict[str, Any]:
    """What the weights are made of, by which libraries, and what they are: `from`, `by`, `to`.

    Raises:
        InputError: the package has no such file.
    """
    made = folder(model, version)
    return {**_sources(model), "to": (made / _RECORD).read_text("utf-8")}


def folder(model: Model, version: str) -> Path:
    """The folder of safetensors, as it was made or made now.

    Raises:
        InputError: the package has no such file.
    """
    sources = _sources(model)
    key = digests.of_contents({"sources": json.dumps(sources, sort_keys=True).encode()})[:16]
    stem = Path(model.gguf_file or "").stem
    made = home() / "models" / f"{model.id}-{version}-{stem}-{model.dtype}-{key}"
    if not _is_whole(made):
        _make(model, made)
    return made


def _sources(model: Model) -> dict[str, Any]:
    return {"from": digests.of_files(digests.below(_package(model))), "by": versions(*_LIBRARIES)}


def _package(model: Model) -> Path:
    spec = importlib.util.find_spec(model.id.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations or model.gguf_file is None:
        raise InputError(f"model {model.name} needs model.gguf_file, a file in package {model.id}.")
    return Path(spec.submodule_search_locations[0])


def _is_whole(made: Path) -> bool:
    """Whether the folder holds what was made, byte for byte."""
    record = made / _RECORD
    return record.is_file() and record.read_text("utf-8") == digests.of_files(digests.below(made))


def _make(model: Model, made: Path) -> None:
    """Convert the file aside, record what came of it, and put it in its place."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{made.name}.", dir=made.parent) as name:
        aside, old = Path(name, "new"), Path(name, "old")
        aside.mkdir()
        _convert(model, aside)
        (aside / _RECORD).write_text(digests.of_files(digests.below(aside)), "utf-8")
        if made.exists() and not _is_whole(made):
            made.rename(old)
        if not made.exists():  # another process may have been faster
            aside.rename(made)


def _convert(model: Model, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    package = _package(model)
    # Unpacked to plain weights: vLLM loads safetensors, and the blocks cannot be saved as such.
    loaded = AutoModelForCausalLM.from_pretrained(
        package,
        gguf_file=model.gguf_file,
        dtype=getattr(torch, model.dtype),
        quantization_config=GgufConfig(dequantize=True),
    )
    loaded.save_pretrained(folder)
    AutoTokenizer.from_pretrained(package, gguf_file=model.gguf_file).save_pretrained(folder)

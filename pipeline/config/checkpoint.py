"""What config.json says of a model, as its folder or the hub's cache has it: nobody is asked."""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, refusing
from factsweep.pipeline.config.model import Model

_READS_IMAGES = "torchvision"
_BESIDE = "Qwen3_5"  # the model of text alone, too, is in the module of the one that reads images


def said(model: Model) -> Mapping[str, Any]:
    """The whole of it; nothing where it is not here.

    Raises:
        InputError: it cannot be read.
    """
    from huggingface_hub import try_to_load_from_cache

    if model.source not in ("hub", "path"):
        return {}
    file: object = Path(model.id, "config.json")
    if model.source == "hub":
        file = try_to_load_from_cache(model.id, "config.json", revision=model.revision)
    if not isinstance(file, str | Path) or not Path(file).is_file():
        return {}
    with refusing(str(file), "fetch the model again"):
        return dict(json.loads(Path(file).read_text()))


def check_wrapper(model: Model) -> None:
    """Refuse a model of images and text that vLLM cannot import, even for text alone.

    Raises:
        InputError: what its images would be read with is not installed, as on machines without GPU.
    """
    config = said(model)
    beside = any(each.startswith(_BESIDE) for each in config.get("architectures") or ())
    if ("vision_config" in config or beside) and find_spec(_READS_IMAGES) is None:
        raise InputError(
            f"model={model.id} also reads images, or vLLM has it in one module with models that "
            f"do, and imports it not without {_READS_IMAGES}, which is not installed here; install "
            "the build of it that fits torch on every node, or take a model of text alone."
        )

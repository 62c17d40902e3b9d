"""Adapters: LoRA weights for a model, as PEFT saves them, in a folder or on the hub."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, input_errors, reason
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.model_files import check_pointers
from factsweep.pipeline.config.model_metadata import headers
from factsweep.pipeline.inputs import digests, hub

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"


def content(adapter: str) -> str:
    """The digest of the adapter's two files: its configuration and its weights.

    Raises:
        InputError: there is no such adapter, or it is none of LoRA's.
    """
    place = folder(adapter)
    with input_errors(f"{place / _CONFIG}", "repair it, or save the adapter again"):
        config: dict[str, Any] = dict(json.loads((place / _CONFIG).read_bytes()))
    kind = config.get("peft_type")
    unfit = [name for name in ("use_dora", "modules_to_save") if config.get(name)]
    if kind != "LORA" or unfit:
        setting = f"peft_type={kind}" if kind != "LORA" else f"{unfit[0]}={config[unfit[0]]}"
        raise InputError(
            f"model.adapter={adapter} has {setting} in its {_CONFIG}, which vLLM does not load "
            "with a model; merge it into the model's weights (PEFT's merge_and_unload), then give "
            "the folder as model."
        )
    return digests.digest_files({name: place / name for name in (_CONFIG, _WEIGHTS)})


def folder(adapter: str) -> Path:
    """The folder of an adapter: itself, or the hub's snapshot of `ORG/NAME[@REVISION]`.

    Raises:
        InputError: there is no such adapter, or it lacks a file.
    """
    place, (name, _, revision) = Path(adapter), adapter.partition("@")
    if not place.is_dir():
        fix = "and it is not in the local cache; check model.adapter, the network, and HF_TOKEN"
        files = [_CONFIG, _WEIGHTS]
        place = hub.snapshot(name, revision or "main", files, "model.adapter", fix)
    for name in (_CONFIG, _WEIGHTS):
        if not (place / name).is_file():
            raise InputError(
                f"model.adapter={adapter} has no {name}; give a folder that PEFT's save_pretrained "
                "wrote, or a model of the hub that has both files."
            )
    check_pointers(place)
    return place


def check(model: Model, base: str, revision: str | None) -> None:
    """Refuse an adapter for another model than `base`: a folder, or a hub's id at a revision."""
    adapter = str(model.adapter)
    with input_errors(f"the safetensors of {model.id}, the base of model.adapter,", "check them"):
        files = headers(base, revision).files_metadata.values()
    shapes = {name: tuple(info.shape) for file in files for name, info in file.tensors.items()}
    modules = {name.rpartition(".")[0] for name in shapes}
    for module, shape in _read_adapted_modules(adapter):
        base_shape = shapes.get(f"{module}.weight")
        # Quantised weights are packed under other names, and have other shapes.
        if base_shape != shape and (base_shape is not None or module not in modules):
            has = f"has it as {_shape(base_shape)}" if base_shape else "has no such module"
            raise InputError(
                f"model.adapter={adapter} adapts {module} ({_shape(shape)}), and {model.id} {has}: "
                "it was trained for another model; give that one, or another adapter."
            )


def _read_adapted_modules(adapter: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The modules that it adapts, and the shape of the weights that it adds there."""
    from safetensors import SafetensorError, safe_open

    path = folder(adapter) / _WEIGHTS
    try:
        with safe_open(path, "np") as file:
            names = list(file.keys())
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        raise InputError(f"{path} is damaged ({reason(error)}); save the adapter again.") from error
    for name, shape_of_a in shapes.items():
        shape_of_b = shapes.get(name.removesuffix(_A) + _B)
        if name.endswith(_A) and shape_of_b is not None:
            yield name.removeprefix(_PREFIX).removesuffix(_A), (shape_of_b[0], shape_of_a[1])


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))

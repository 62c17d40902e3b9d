"""Quantised weights: how and to how many bits, as config.json says it, and whether that runs here.

vLLM reads the same file, but says in engines that die of it what it has no kernels for.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, refusing
from factsweep.operators.wording import count
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.machine import processor

# A scheme whose kernels are a package of its own name, which is in no lock file.
_FURTHER = "bitsandbytes"
# The first compute capability of GPUs with kernels of vLLM's, where not all that it runs on have.
_FIRST_GPU = {"awq": 7.5, "fp8": 7.5}
_FLOATS = ("fp8", "fbgemm_fp8", "modelopt")
_INTEGERS = ("awq", "gptq")


def bits(said: Mapping[str, Any]) -> int | None:
    """The bits of a quantised parameter, as AWQ, GPTQ, bitsandbytes or compressed-tensors say it.

    Where groups of layers have several, these are the fewest.
    """
    if "config_groups" in said:
        weights = [group.get("weights") or {} for group in said["config_groups"].values()]
        found = [int(each["num_bits"]) for each in weights if "num_bits" in each]
        return min(found, default=None)
    if said.get("load_in_4bit"):
        return 4
    if said.get("load_in_8bit") or said.get("quant_method") == "fp8":
        return 8
    n = said.get("bits") or said.get("w_bit")
    return int(n) if n else None


def scheme(model: Model) -> str | None:
    """How the weights are quantised, as `awq, 4 bits`; null: they are not, or nobody says."""
    said = _said(model)
    method = said.get("quant_method")
    if method is None:
        return None
    n = bits(said)
    return f"{method}, {count(n, 'bit')}" if n else str(method)


def weights_gb(model: Model) -> float:
    """About how many gigabytes the weights have, by the bits of a parameter."""
    n = bits(_said(model)) or (32 if model.dtype == "float32" else 16)
    return (model.billions_of_parameters or 0) * n / 8


def check(model: Model, device: str) -> None:
    """Refuse what no engine on `cpu` or `cuda` computes, before weights are fetched or loaded.

    Raises:
        InputError: the kernels of the scheme are a package that is not installed, or vLLM has none
            for this CPU or GPU, or for the type of the rest.
    """
    said = _said(model)
    if model.architecture == "decoder" and (why := _lacking(said, device, model.dtype)):
        raise InputError(f"model={model.id} is quantised ({scheme(model)}): {why}.")
    if said.get("quant_method") == _FURTHER and find_spec(_FURTHER) is None:
        raise InputError(
            f"model={model.id} is quantised by {_FURTHER}, whose kernels are not installed; "
            f"install them on every node with: pip install {_FURTHER}, or take a copy in AWQ, "
            "GPTQ, FP8 or compressed-tensors."
        )


def _lacking(said: Mapping[str, Any], device: str, dtype: str) -> str | None:
    """Why vLLM cannot compute with such weights on `cpu` or `cuda`, and what to do; null: it can.

    Tried on CPUs with vLLM 0.32, which runs 8-bit integers (W8A8) on all of them.
    """
    method = str(said.get("quant_method"))
    weights = [each.get("weights") or {} for each in said.get("config_groups", {}).values()]
    packed = method in _INTEGERS or said.get("format") == "pack-quantized"
    if packed and dtype == "float32":
        return f"its layers do not compute in model.dtype={dtype}; give model.dtype=bfloat16"
    if device == "cuda":
        found, first = processor.compute_capability(), _FIRST_GPU.get(method, 0.0)
        if found is not None and found < first:
            return f"it needs a GPU of compute capability {first}, and this one has {found}"
        return None
    another = "take its weights in W8A8, or whole"
    flags = processor.flags()
    is_float = method in _FLOATS or any(each.get("type") == "float" for each in weights)
    if is_float and "amx_tile" not in flags:
        return f"vLLM computes with FP8 on CPUs with AMX alone; {another}, or use a GPU"
    if packed and bits(said) != 4:
        return f"of packed integers vLLM computes with 4 bits alone on a CPU; {another}"
    if packed and "sse2" in flags and "avx512f" not in flags:  # x86-64
        return f"vLLM computes with 4 bits on CPUs with AVX-512 alone; {another}, or use a GPU"
    return None


def _said(model: Model) -> Mapping[str, Any]:
    return config_json(model).get("quantization_config") or {}


def config_json(model: Model) -> Mapping[str, Any]:
    """What it says, as the folder or the hub's cache has it; nothing where it is not here.

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
    if "vision_config" in config_json(model) and find_spec("torchvision") is None:
        raise InputError(
            f"model={model.id} also reads images, and vLLM does not import it without "
            "torchvision, which is not installed here; install the build of it that fits "
            "torch on every node, or take a model of text alone."
        )

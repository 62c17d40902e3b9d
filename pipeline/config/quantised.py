"""Quantised weights: how and to how many bits, as config.json says it, and whether that runs here.

vLLM reads the same file, and refuses before it loads what the GPU is too old for.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, refusing
from factsweep.operators.wording import count
from factsweep.pipeline.config.model import Model

# A scheme whose kernels are a package of its own name, which is in no lock file.
_FURTHER = "bitsandbytes"


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


def check(model: Model) -> None:
    """Refuse what no engine here can compute, before weights are fetched or loaded.

    Raises:
        InputError: the kernels of the scheme are a package that is not installed.
    """
    if _said(model).get("quant_method") == _FURTHER and find_spec(_FURTHER) is None:
        raise InputError(
            f"model={model.id} is quantised by {_FURTHER}, whose kernels are not installed; "
            f"install them on every node with: pip install {_FURTHER}, or take a copy in AWQ, "
            "GPTQ, FP8 or compressed-tensors."
        )


def _said(model: Model) -> Mapping[str, Any]:
    """The part of config.json on it, from a folder or the hub's cache: nobody is asked."""
    from huggingface_hub import try_to_load_from_cache

    if model.source not in ("hub", "path"):
        return {}
    file: object = Path(model.id, "config.json")
    if model.source == "hub":
        file = try_to_load_from_cache(model.id, "config.json", revision=model.revision)
    if not isinstance(file, str | Path) or not Path(file).is_file():
        return {}
    with refusing(str(file), "fetch the model again"):
        found: Mapping[str, Any] = json.loads(Path(file).read_text()).get("quantization_config")
    return found or {}

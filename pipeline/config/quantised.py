"""Quantised weights: how and to how many bits, as config.json says it, and whether that runs here.

ModelOpt before 0.31 said it in a file of its own. vLLM reads the same files, but says in engines
that die of it what it has no kernels for.
"""

import json
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from factsweep.operators.engines.vllm import source
from factsweep.operators.errors import InputError, refusing
from factsweep.operators.wording import count
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.machine import processor

# A scheme whose kernels are a package of its own name, which is in no lock file.
_FURTHER = "bitsandbytes"
_INTEGERS = ("awq", "gptq", "auto-round")
_EXPERTS = "mxfp4"  # of gpt-oss: of its experts alone, for which vLLM has kernels on CPUs, too
_BESIDE = "Qwen3_5"  # the model of text alone, too, is in the module of the one that reads images
_BITS = re.compile(r"(?:int|fp|float|\bw(?=\d+a\d))(\d+)")  # uint4, NVFP4, fp8_e4m3, W4A16_AWQ
# Sums of 16 bits, which weights beyond 64 overflow, are what oneDNN has on x86-64 without these.
_VNNI = {"avx512_vnni", "avx_vnni", "amx_int8"}
_APART = "hf_quant_config.json"
_ELSE = "take a copy in AWQ, GPTQ, FP8 or compressed-tensors, or the weights as they were"


def told(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a config.json says of quantisation, wherever vLLM looks for it; nothing: not quantised.

    >>> told({"text_config": {"compression_config": {"quant_method": "compressed_tensors"}}})
    {'quant_method': 'compressed-tensors'}
    """
    names = ("quantization_config", "compression_config")
    places = (config, config.get("text_config") or {})
    said = (place.get(each) for place in places for each in names)
    found: Mapping[str, Any] = next(filter(None, said), {})
    by = found.get("quant_method") or (found.get("producer") or {}).get("name") or ""
    method = str(by).lower().replace("compressed_tensors", "compressed-tensors")
    return {**found, **(found.get("quantization") or {}), "quant_method": method} if method else {}


def bits(said: Mapping[str, Any]) -> int | None:
    """The bits of a quantised parameter, as the makers of each scheme say it.

    Where groups of layers have several, these are the fewest.
    """
    if "config_groups" in said:
        weights = [group.get("weights") or {} for group in said["config_groups"].values()]
        found = [int(each["num_bits"]) for each in weights if "num_bits" in each]
        return min(found, default=None)
    if n := said.get("bits") or said.get("w_bit"):
        return int(n)
    if said.get("load_in_4bit") or said.get("load_in_8bit"):
        return 4 if said.get("load_in_4bit") else 8
    others = (said.get("global_quant_config") or {}).get("weight"), said.get("quant_type")
    named = f"{_name(said)} {others}".lower()  # those of Quark and torchao
    return min(map(int, _BITS.findall(named)), default=None)


def _name(said: Mapping[str, Any]) -> str:
    """What tells the formats of layers, in small letters."""
    names = [said.get(each) for each in ("quant_method", "format", "quant_algo")]
    layers = (said.get("quantized_layers") or {}).values()
    return " ".join(map(str, (*names, *(each.get("quant_algo") for each in layers)))).lower()


def scheme(model: Model) -> str | None:
    """How the weights are quantised, as `awq, 4 bits`; null: they are not, or nobody says."""
    said = _said(model)
    if not said:
        return None
    n = bits(said)
    return f"{said['quant_method']}, {count(n, 'bit')}" if n else str(said["quant_method"])


def weights_gb(model: Model) -> float:
    """About how many gigabytes the weights have, by the bits of a parameter."""
    n = bits(_said(model)) or (32 if model.dtype == "float32" else 16)
    return (model.billions_of_parameters or 0) * n / 8


def check(model: Model, device: str, engine: str) -> None:
    """Refuse what an engine on `cpu` or `cuda` does not compute, before anything is loaded.

    The kernels of a scheme may be a package that is not installed; or vLLM has none for this CPU or
    GPU, or for the type of the rest.
    """
    said, why = _said(model), None
    if said and engine == "vllm":
        why = _lacking(said, device, model.dtype)
    elif said and said["quant_method"] == _FURTHER and find_spec(_FURTHER) is None:
        why = f"its kernels are not installed; give them with pip install {_FURTHER}, or {_ELSE}"
    if why:
        raise InputError(
            f"model={model.id} is quantised ({scheme(model)}), which {engine} does not run with "
            f"cluster.device={device}: {why}."
        )


def _lacking(said: Mapping[str, Any], device: str, dtype: str) -> str | None:
    """Why vLLM cannot compute with such weights on a device, and what to do; null: it can."""
    method, known = said["quant_method"], source.schemes()
    if known is not None and method not in known:
        return f"vLLM has no such scheme; {_ELSE}"
    if method == "gptq" and said.get("desc_act") and said.get("group_size") != -1:
        return f"vLLM has no kernels for desc_act with groups any more; {_ELSE}"
    needs, found = source.scheme(method), processor.compute_capability()
    if device == "cpu" and (why := _lacking_on_cpu(said)):
        return why
    if device == "cpu" and dtype == "float32" and _has_8_bit_sums(said) and _has_amx():
        return (
            "on CPUs with AMX its 8-bit layers compute in bfloat16 alone; give model.dtype=bfloat16"
        )
    if device == "cuda" and needs and found is not None and found < needs.first_gpu:
        return f"it needs a GPU of compute capability {needs.first_gpu}, and this one has {found}"
    if (needs and dtype not in needs.dtypes) or (_is_packed(said) and dtype == "float32"):
        return f"its layers do not compute in model.dtype={dtype}; give model.dtype=bfloat16"
    return None


def _has_amx() -> bool:
    return "amx_tile" in processor.flags()


def _lacking_on_cpu(said: Mapping[str, Any]) -> str | None:
    """Why not on a CPU: as vLLM 0.32 was seen to run, or to fail with, tiny models."""
    flags = processor.flags()
    is_x86_64 = "sse2" in flags
    is_exact = not is_x86_64 or bool(flags & _VNNI)
    else_ = f"take its weights {'in W8A8 (INT8), or ' if is_exact else ''}whole, or use a GPU"
    groups = list(said.get("config_groups", {}).values())
    scales = {
        tuple((each.get(part) or {}).get("strategy") for part in ("weights", "input_activations"))
        for each in groups
    }
    is_float = "fp8" in _name(said) or "float-quantized" in _name(said)
    only_weights = is_float and any(of_inputs is None for _, of_inputs in scales)
    name = f"{_name(said)} {'wfp8a16' if only_weights else ''}"
    unknown = [each for each in sorted(source.without_cpu()) if each in name]
    if unknown and said["quant_method"] != _EXPERTS:
        return f"vLLM has no kernels for {unknown[0].upper()} on CPUs; {else_}"
    if is_float and scales != {("channel", "token")} and not _has_amx():
        return (
            "vLLM computes with FP8 on CPUs without AMX only where each channel and each token has "
            f"a scale of its own (FP8-dynamic of compressed-tensors); {else_}"
        )
    if _has_8_bit_sums(said) and not is_exact:
        return f"without VNNI in the CPU vLLM's sums of 8-bit products overflow unseen; {else_}"
    if _is_packed(said) and bits(said) != 4:
        return f"of packed integers vLLM computes with 4 bits alone on CPUs; {else_}"
    if _is_packed(said) and is_x86_64 and "avx512f" not in flags:
        return f"vLLM computes with 4 bits on CPUs with AVX-512 alone; {else_}"
    return None


def _has_8_bit_sums(said: Mapping[str, Any]) -> bool:
    """Whether weights and inputs are multiplied as 8-bit integers (W8A8)."""
    is_float = "fp8" in _name(said) or "float-quantized" in _name(said)
    groups = said.get("config_groups", {}).values()
    has_inputs = any((group.get("input_activations") or {}).get("strategy") for group in groups)
    return has_inputs and not is_float and not _is_packed(said)


def _is_packed(said: Mapping[str, Any]) -> bool:
    """Whether several integers are one number of the checkpoint."""
    return said["quant_method"] in _INTEGERS or said.get("format") == "pack-quantized"


def _said(model: Model) -> Mapping[str, Any]:
    return told_by(config_json(model), lambda name: config_json(model, name))


def told_by(
    config: Mapping[str, Any], read: Callable[[str], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """What a config.json says of quantisation, or if it says nothing, the file of ModelOpt's."""
    return told(config) or told({"quantization_config": read(_APART)})


def config_json(model: Model, name: str = "config.json") -> Mapping[str, Any]:
    """What it says, as the folder or the hub's cache has it; nothing where it is not here.

    Raises:
        InputError: it cannot be read.
    """
    if model.source not in ("hub", "path"):
        return {}
    on_hub = model.source == "hub"
    file = in_cache(model.id, name, model.revision) if on_hub else Path(model.id, name)
    if file is None or not file.is_file():
        return {}
    with refusing(str(file), "fetch the model again"):
        return dict(json.loads(file.read_bytes()))


def in_cache(model_id: str, name: str, revision: str) -> Path | None:
    """A file of the hub as its cache has it; null where it does not."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model_id, name, revision=revision)
    return Path(found) if isinstance(found, str) else None


def check_wrapper(model: Model) -> None:
    """Refuse a model of images and text that vLLM cannot import, even for text alone."""
    config = config_json(model)
    beside = any(each.startswith(_BESIDE) for each in config.get("architectures") or ())
    if ("vision_config" in config or beside) and find_spec("torchvision") is None:
        raise InputError(
            f"model={model.id} also reads images, or vLLM has it in one module with models that "
            "do, and does not import it without torchvision, which is not installed here; install "
            "the build of it that fits torch on every node, or take a model of text alone."
        )

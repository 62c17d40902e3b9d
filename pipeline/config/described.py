"""A model as its own files describe it: what conf/ leaves open is read from there.

Those are config.json, the headers of the safetensors, and the tokenizer's configuration; weights
are not loaded. A model of the hub needs the network for it once: then its cache has them.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from factsweep.operators.engines.vllm import source
from factsweep.operators.errors import InputError, reason, refusing
from factsweep.operators.wording import count
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.model_files import check_folder
from factsweep.pipeline.machine import processor

_READ = ("architecture", "billions_of_parameters", "max_model_len")
_GIVE = f"give {', '.join(f'model.{name}' for name in _READ)}"
_WEIGHTS = (".bin", ".gguf", ".pt", ".pth", ".safetensors")
_READ_WEIGHTS = {"model.safetensors", "model.safetensors.index.json"}
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# What stands in for what is null, so that the types of the rest can be checked first.
OPEN: Mapping[str, Any] = {
    "name": "model",
    "source": "hub",
    "architecture": "decoder",
    "billions_of_parameters": 1.0,
    "instruction_tuned": False,
    "max_model_len": 1,
    "tensor_parallel": 1,
}
_FLOATS = ("F64", "F32", "F16", "BF16")
_PACKED = ("I32", "U8")
_HUB_S = 10.0
_FOLDER = re.compile(r"~?/|\.\.?/")
# What the name of a checkpoint says of its training, as its makers write it.
_BASE = re.compile(r"(^|[-_.])(base|pt)($|[-_.])", re.IGNORECASE)
_TUNED = re.compile(r"(^|[-_.])(it|instruct|chat|sft|dpo)($|[-_.])", re.IGNORECASE)

# A GPU holds its part of the weights, its part of the cache for `_TOKENS` tokens (256 prompts of
# 128 tokens, which keep it busy), and `_OVERHEAD` of the engine's own.
_LONGEST = 4096  # prompts here have hundreds of tokens; the cache must hold one of this length
_TOKENS = 32_768
_OVERHEAD = 2e9  # bytes a GPU: activations, CUDA graphs, buffers
_ON_ONE_NODE = (1, 2, 4, 8)
# In GB, of GPUs that do not have it in their names.
_GB = {
    "B200": 180,
    "H200": 141,
    **dict.fromkeys(("H100", "H800"), 80),
    **dict.fromkeys(("L40", "A40", "A6000"), 48),
    "A100": 40,
    **dict.fromkeys(("4090", "3090", "A10", "L4"), 24),
    **dict.fromkeys(("T4", "V100", "P100"), 16),
}
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


class _Source(NamedTuple):
    """Where the files of a model are: a folder, or an id of the hub at a revision."""

    id: str
    revision: str | None
    trust_remote_code: bool


class _Stored(NamedTuple):
    """The numbers of a checkpoint by the type that they are stored in; `bits` of a quantised one.

    Schemes of fewer than 8 bits pack several parameters into a 32-bit integer or a byte.
    """

    counts: Mapping[str, int]
    bits: int | None

    @property
    def billions(self) -> float:
        """The parameters, to four digits."""
        return float(f"{sum(n * self._packed(name) for name, n in self.counts.items()) / 1e9:.4g}")

    def _packed(self, name: str) -> float:
        """How many parameters a number of a type holds."""
        if self.bits is None or name not in _PACKED:
            return 1
        return max(1.0, 8 * _stored_width(name) / self.bits)

    def n_bytes(self, width: int) -> float:
        """Their size in memory; plain floats are converted to `width` bytes, others kept."""
        return sum(
            n * (width if name in _FLOATS else _stored_width(name))
            for name, n in self.counts.items()
        )


def _stored_width(name: str) -> float:
    """Bytes of a number of a type of safetensors: I32, U8, F8_E4M3, F4."""
    found = re.search(r"\d+", name)
    return int(found[0]) / 8 if found else 1


def described(model: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a model, with those that are null filled in as far as they can be known.

    Raises:
        InputError: the model's files cannot be read, or do not tell; it names the field to give.
    """
    found = dict(model)
    if found["adapter"] is not None and Path(found["adapter"]).is_dir():
        found["adapter"] = str(Path(found["adapter"]).absolute())
    found["name"] = _named(found)
    if found["source"] == "endpoint":
        return found
    if found["source"] is None:
        if _FOLDER.match(found["id"]) and not Path(found["id"]).is_dir():
            raise InputError(f"model={found['id']}: there is no such folder; check its path.")
        found["source"] = "path" if Path(found["id"]).is_absolute() else "hub"
    if found["source"] == "path" and Path(found["id"]).is_dir():
        is_loaded = (found["engine"] or {}).get("load_format") != "dummy"
        check_folder(Path(found["id"]), needs_weights=is_loaded)
    if found["source"] != "package" and any(found[name] is None for name in _READ):
        with refusing(
            f"what model={found['id']} says of itself in its config.json", f"repair it, or {_GIVE}"
        ):
            _read(found, cluster)
    width = bytes_per_number(found["dtype"], cluster["device"], lambda: None)
    weights = (found["billions_of_parameters"] or 0) * 1e9 * width
    if found["tensor_parallel"] is None:
        found["tensor_parallel"] = tensor_parallel(found, cluster, Need(weights, 0.0))
    check_shared(found, cluster, weights)
    return found


def _named(found: Mapping[str, Any]) -> str:
    """The name: the last part of the id, where none is given; +ADAPTER, if any."""
    adapter = f"+{_last_part(found['adapter'])}" if found["adapter"] else ""
    return f"{found['name'] or _last_part(found['id'])}{adapter}"


def _last_part(place: str) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(place).name)


def _read(found: dict[str, Any], cluster: Mapping[str, Any]) -> None:
    on_hub = found["source"] == "hub"
    source = _Source(
        found["id"], found["revision"] if on_hub else None, bool(found["trust_remote_code"])
    )
    config = _config(source)
    text = config.get_text_config()
    if found["architecture"] is None:
        found["architecture"] = _architecture(source, config)
    encoder = found["architecture"] == "encoder"
    stored = None
    if found["billions_of_parameters"] is None:
        said = told_by(config.to_dict(), partial(_json, source))
        stored = _stored(source, bits(said))
        found["billions_of_parameters"] = stored.billions
    per_token = 0.0 if encoder else _cached_per_token(text)
    if found["max_model_len"] is None:
        own = _context(source, text, encoder=encoder)
        found["max_model_len"] = max_model_len(own, per_token, cluster)
    if found["instruction_tuned"] is None:
        found["instruction_tuned"] = False if encoder else _instruction_tuned(source, found["name"])
    if found["tensor_parallel"] is None and encoder:
        found["tensor_parallel"] = 1
    elif found["tensor_parallel"] is None:
        width = bytes_per_number(
            found["dtype"], cluster["device"], lambda: str(config.dtype).removeprefix("torch.")
        )
        billions = float(found["billions_of_parameters"])
        weights = stored.n_bytes(width) if stored else billions * 1e9 * width
        need = Need(weights, per_token * width, int(text.num_attention_heads), _key_heads(text))
        found["tensor_parallel"] = tensor_parallel(found, cluster, need)


def _config(source: _Source) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            source.id,
            revision=source.revision,
            trust_remote_code=source.trust_remote_code,
            local_files_only=source.revision is not None and not _hub_answers(source),
        )
    except Exception as error:
        why = reason(error)
        if "trust_remote_code" in str(error):
            why = "it is code of its own: read it, then pass model.trust_remote_code=true"
        is_folder = source.revision is None
        fix = "check the file" if is_folder else "check the id, the network and HF_TOKEN"
        raise InputError(
            f"the config.json of model={source.id} cannot be read ({why}); {fix}, or {_GIVE}."
        ) from error


def _hub_answers(source: _Source) -> bool:
    """Whether the hub can be reached: its client would try half a minute to read a file of it."""
    from httpx2 import TransportError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(source.id, revision=source.revision, timeout=_HUB_S)
    except (TransportError, ConnectionError):
        return False
    except HfHubHTTPError:
        return True  # what it refuses is told when the file is asked for
    return True


def _architecture(source: _Source, config: Any) -> str:
    """Decoder or encoder, by the head that the checkpoint was saved with."""
    from transformers.models.auto import modeling_auto as known

    names = config.architectures or []
    masked = set(known.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values())
    causal = set(known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    causal |= set(known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values())
    if not config.is_encoder_decoder:
        if any(name in masked for name in names):
            return "encoder"
        if any(name in causal or name.endswith("ForCausalLM") for name in names):
            return "decoder"
    raise InputError(
        f"model={source.id} is {' or '.join(names) or 'of no architecture'} by its config.json, "
        "which neither continues a text nor fills a mask as far as transformers knows; if it "
        "does, give model.architecture=decoder or model.architecture=encoder."
    )


def headers(name: str, revision: str | None) -> Any:
    """What the headers of the safetensors say of a folder, or of a hub's id at a revision."""
    from huggingface_hub import get_local_safetensors_metadata, get_safetensors_metadata

    folder = name if revision is None else cached(name, revision)
    if folder is not None:
        return get_local_safetensors_metadata(folder)
    return get_safetensors_metadata(name, revision=revision)


def _stored(source: _Source, bits: int | None) -> _Stored:
    try:
        found = headers(source.id, source.revision)
    except Exception as error:
        cause, fix = reason(error), ""
        names = [path.name for path in Path(source.id).glob("*")] if source.revision is None else []
        if source.revision is None and _READ_WEIGHTS.isdisjoint(names):
            weights = sorted(name for name in names if name.endswith(_WEIGHTS))
            cause, fix = "it has no weights", "copy them, or "
            if weights:
                cause = f"its weights are in {weights[0]}"
                fix = "save them as model.safetensors (save_pretrained), or "
        raise InputError(
            f"model={source.id} does not tell how many parameters it has, as safetensors would "
            f"({cause}); {fix}give model.billions_of_parameters."
        ) from error
    return _Stored({str(name): n for name, n in found.parameter_count.items()}, bits)


def cached(model_id: str, revision: str) -> Path | None:
    """The snapshot in the hub's cache, where it has all weights; null: it must be asked."""
    if (whole := in_cache(model_id, "model.safetensors", revision)) is not None:
        return whole.parent
    if (index := in_cache(model_id, "model.safetensors.index.json", revision)) is None:
        return None
    shards = set(json.loads(index.read_bytes())["weight_map"].values())
    return index.parent if all((index.parent / shard).is_file() for shard in shards) else None


def _context(source: _Source, text: Any, *, encoder: bool) -> int:
    """How many tokens the model has positions for."""
    found = [getattr(text, name, None) for name in _LENGTHS]
    if encoder:  # some reserve positions, and only their tokenizer tells
        found.append(_json(source, "tokenizer_config.json").get("model_max_length"))
    lengths = [int(each) for each in found if each is not None and 0 < each < 1e9]
    if not lengths:
        raise InputError(
            f"the config.json of model={source.id} does not say how long a text may be; give "
            "model.max_model_len."
        )
    return min(lengths)


def _cached_per_token(text: Any) -> float:
    """How many numbers the cache of keys and values holds for one token."""
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return float(2 * text.num_hidden_layers * _key_heads(text) * width)


def _key_heads(text: Any) -> int:
    """How many heads of keys and values there are; several heads of queries may share one."""
    return int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)


def _instruction_tuned(source: _Source, name: str) -> bool | None:
    """Whether a decoder was tuned to follow instructions; null where its files do not tell.

    A model without a chat template was not. One that has a template need not have been: base models
    ship one, too. Then only a name may tell.
    """
    if _BASE.search(name) or not _has_chat_template(source):
        return False
    return True if _TUNED.search(name) else None


def _has_chat_template(source: _Source) -> bool:
    if _file(source, "chat_template.jinja") is not None:
        return True
    return "chat_template" in _json(source, "tokenizer_config.json")


def _json(source: _Source, name: str) -> dict[str, Any]:
    path = _file(source, name)
    with refusing(f"{path}", "repair it, or fetch it again"):
        return {} if path is None else dict(json.loads(path.read_bytes()))


def _file(source: _Source, name: str) -> Path | None:
    """A file of the model; null if it has none of that name."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    if source.revision is None:
        path = Path(source.id) / name
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(source.id, name, revision=source.revision))
    except EntryNotFoundError:
        return None


class Need(NamedTuple):
    """Bytes of the weights, and of the cache per token; heads of queries and keys (0: unknown)."""

    weights: float
    cache_per_token: float
    heads: int = 0
    key_heads: int = 0


def bytes_per_number(asked: str, device: str, stored: Callable[[], str | None]) -> int:
    """Bytes of a number in memory, with `auto` settled as for the run (`processor.best`)."""
    settled = processor.best(processor.device(device), stored) if asked == processor.AUTO else asked
    return 4 if settled == "float32" else 2


def max_model_len(own: int, cached_per_token: float, cluster: Mapping[str, Any]) -> int:
    """The model's own context, at most 4,096; on a CPU no more than its cache holds in float32."""
    longest = min(own, _LONGEST)
    if processor.device(cluster["device"]) == "cpu" and cached_per_token:
        held = cluster["cpu_kvcache_gib"] * 2**30 / (4 * cached_per_token)
        longest = min(longest, int(held) // 128 * 128)
    return max(1, longest)


def tensor_parallel(model: Mapping[str, Any], cluster: Mapping[str, Any], need: Need) -> int:
    """The smallest number of GPUs of one node that hold the model; 1 where none is known.

    Raises:
        InputError: eight of them are too few.
    """
    if processor.device(cluster["device"]) == "cpu" or model["architecture"] == "encoder":
        return 1
    each = gpu_bytes(cluster["hardware"])
    if each is None:
        return 1
    room = each * model["gpu_memory_utilization"] - _OVERHEAD
    for gpus in _ON_ONE_NODE:
        part = _held(need, gpus) / model["pipeline_parallel"]
        if _divides(need, gpus) and part <= room:
            return gpus
    held = _held(need, 1)
    raise InputError(
        f"model={model['name']} needs {held / 1e9:,.0f} GB for weights and cache, and 8 GPUs of "
        f"{each / 1e9:,.0f} GB are too few; give model.pipeline_parallel, or model.tensor_parallel "
        "as you know it."
    )


def check_shared(model: Mapping[str, Any], cluster: Mapping[str, Any], weights: float) -> None:
    """Refuse more engines on one GPU than it has room for; `weights`: bytes of one engine."""
    shared, utilization = model["replicas"]["per_gpu"], model["gpu_memory_utilization"]
    on_gpu = shared > 1 and processor.device(cluster["device"]) == "cuda"
    each = gpu_bytes(cluster["hardware"]) if on_gpu else None
    if each is None or weights + _OVERHEAD <= each * utilization / shared:
        return
    fit = int(each * utilization / (weights + _OVERHEAD))
    raise InputError(
        f"model.replicas.per_gpu={shared}: each engine of {model['name']} needs "
        f"{(weights + _OVERHEAD) / 1e9:,.0f} GB and a cache, and has "
        f"{each * utilization / shared / 1e9:,.0f} of the GPU's {each / 1e9:,.0f} GB; give "
        f"model.replicas.per_gpu={max(1, fit)} or less."
    )


def _divides(need: Need, gpus: int) -> bool:
    """Whether each GPU gets as many heads; keys that are fewer than the GPUs are copied to them."""
    keys = need.key_heads
    return need.heads % gpus == 0 and (keys % gpus == 0 or gpus % keys == 0)


def _held(need: Need, gpus: int) -> float:
    """Bytes of weights and cache on each of the GPUs; a head of keys is not divided further."""
    return need.weights / gpus + _TOKENS * need.cache_per_token / min(gpus, need.key_heads or gpus)


def gpu_bytes(name: str | None) -> float | None:
    """The memory of one GPU of that name, or of this machine's first; null: nobody knows.

    >>> gpu_bytes("NVIDIA A100-SXM4-80GB"), gpu_bytes("NVIDIA H200"), gpu_bytes("some GPU")
    (80000000000.0, 141000000000.0, None)
    """
    if name is None:
        seen = processor.gpu_mib()
        return None if seen is None else seen * 2.0**20
    written = re.search(r"(\d+)\s?Gi?B", name)
    if written:
        return float(written[1]) * 1e9
    found = re.findall(r"[A-Z]*\d+", name)
    return next((_GB[each] * 1e9 for each in found if each in _GB), None)


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

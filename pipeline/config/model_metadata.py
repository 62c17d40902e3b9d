"""Reads the fields of a model that conf/ leaves open from the model's own files.

Those are config.json, the headers of the safetensors, and the tokenizer's configuration; weights
are not loaded. A model of the hub needs the network once: then it is in the hub's cache.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from traceback import format_exception
from typing import Any, NamedTuple

from factsweep.operators.engines.vllm import source as vllm_source
from factsweep.operators.errors import InputError, NotAtHandError, input_errors, reason
from factsweep.operators.wording import count
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.model_files import check_folder
from factsweep.pipeline.machine import processor

_READ = ("architecture", "billions_of_parameters", "max_model_len")
_GIVE = f"give {', '.join(f'model.{name}' for name in _READ)}"
_WEIGHTS = (".bin", ".gguf", ".pt", ".pth", ".safetensors")
_READ_WEIGHTS = {"model.safetensors", "model.safetensors.index.json"}
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# Placeholders for unset fields, so that the types of the others can be checked first.
OPEN: Mapping[str, Any] = {
    "name": "model",
    "source": "hub",
    "architecture": "decoder",
    "billions_of_parameters": 1.0,
    "max_model_len": 1,
    "tensor_parallel": 1,
}
_FLOATS = ("F64", "F32", "F16", "BF16")
_PACKED = ("I32", "U8")
_HUB_S = 10.0
_SIZE = re.compile(r"(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])\b")  # 8b, 0.5b, 410m, 8x7b
_FOLDER = re.compile(r"~?/|\.\.?/")

# A GPU holds its part of the weights, its part of the cache for `_TOKENS` tokens (256 prompts of
# 128 tokens, which keep it busy), and `_OVERHEAD` of the engine's own.
_LONGEST = 4096  # prompts have hundreds of tokens; the cache must hold one of this length
_TOKENS = 32_768
_OVERHEAD = 2e9  # bytes per GPU: activations, CUDA graphs, buffers
_ON_ONE_NODE = (1, 2, 4, 8)


class GpuKind(NamedTuple):
    """GB of memory where the name does not say it; dense 16-bit TFLOPS; TB/s of memory."""

    memory_gb: int
    tflops: int
    bandwidth: float


# Source: NVIDIA's data sheets.
GPUS: Mapping[str, GpuKind] = {
    "B200": GpuKind(180, 2250, 8.0),
    "H200": GpuKind(141, 989, 4.8),
    **dict.fromkeys(("H100", "H800"), GpuKind(80, 989, 3.35)),
    "A100": GpuKind(40, 312, 1.6),
    "L40": GpuKind(48, 181, 0.86),
    "A40": GpuKind(48, 150, 0.70),
    "A6000": GpuKind(48, 155, 0.77),
    "4090": GpuKind(24, 165, 1.0),
    "3090": GpuKind(24, 71, 0.94),
    "A10": GpuKind(24, 125, 0.60),
    "L4": GpuKind(24, 121, 0.30),
    "V100": GpuKind(16, 125, 0.90),
    "T4": GpuKind(16, 65, 0.32),
    "P100": GpuKind(16, 21, 0.73),
}
_BITSANDBYTES = "bitsandbytes"  # a scheme whose kernels are a package that is in no lock file
_INTEGERS = ("awq", "gptq", "auto-round")
_EXPERTS = "mxfp4"  # of gpt-oss: of its experts alone, for which vLLM has kernels on CPUs, too
_QWEN = "Qwen3_5"  # vLLM has its models of text in the module of models of images
_BITS = re.compile(r"(?:int|fp|float|\bw(?=\d+a\d))(\d+)")  # uint4, NVFP4, fp8_e4m3, W4A16_AWQ
# Without these, oneDNN on x86-64 has 16-bit sums, which weights beyond 64 overflow.
_VNNI = {"avx512_vnni", "avx_vnni", "amx_int8"}
_MODELOPT_FILE = "hf_quant_config.json"
_TAKE_COPY = "take a copy in AWQ, GPTQ, FP8 or compressed-tensors, or the weights as they were"


class _Source(NamedTuple):
    """The place of a model's files: a folder, or an id of the hub at a revision."""

    id: str
    revision: str | None
    trust_remote_code: bool


class _StoredValues(NamedTuple):
    """The number of stored values by type; `bits` of a quantised parameter.

    Schemes of fewer than 8 bits pack several parameters into a 32-bit integer or a byte.
    """

    counts: Mapping[str, int]
    bits: int | None

    @property
    def billions(self) -> float:
        """The parameters, to four digits."""
        n_parameters = 0.0
        for kind, n in self.counts.items():
            is_packed = self.bits is not None and kind in _PACKED
            n_parameters += n * (
                max(1.0, 8 * _bytes_per_value(kind) / (self.bits or 8)) if is_packed else 1
            )
        return float(f"{n_parameters / 1e9:.4g}")

    def n_bytes(self, width: int) -> float:
        """Their size in memory; plain floats are converted to `width` bytes, others kept."""
        counts = self.counts.items()
        return sum(n * (width if kind in _FLOATS else _bytes_per_value(kind)) for kind, n in counts)


def _bytes_per_value(kind: str) -> float:
    """Bytes of a value of a type of safetensors: I32, U8, F8_E4M3, F4."""
    n_bits = re.search(r"\d+", kind)
    return int(n_bits[0]) / 8 if n_bits else 1


def describe(model: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a model, unset ones read from its files; an InputError names one to give."""
    fields = dict(model)
    adapter = fields["adapter"]
    if adapter is not None and Path(adapter).is_dir():
        fields["adapter"] = str(Path(adapter).absolute())
    name = fields["name"] or _last_part(fields["id"])
    fields["name"] = f"{name}+{_last_part(adapter)}" if adapter else name
    if fields["source"] == "endpoint":
        return fields
    if fields["source"] is None:
        if _FOLDER.match(fields["id"]) and not Path(fields["id"]).is_dir():
            raise InputError(f"model={fields['id']}: there is no such folder; check its path.")
        fields["source"] = "path" if Path(fields["id"]).is_absolute() else "hub"
    if fields["source"] == "path" and Path(fields["id"]).is_dir():
        is_loaded = (fields["engine"] or {}).get("load_format") != "dummy"
        check_folder(Path(fields["id"]), needs_weights=is_loaded)
    if fields["source"] == "absent":
        _fill_size_from_name(fields)
    elif fields["source"] != "package" and any(fields[name] is None for name in _READ):
        with input_errors(f"the config.json of model={fields['id']}", f"repair it, or {_GIVE}"):
            _fill_from_files(fields, cluster)
    width = bytes_per_number(fields["dtype"], cluster["device"], lambda: None)
    weights = (fields["billions_of_parameters"] or 0) * 1e9 * width
    if fields["tensor_parallel"] is None:
        fields["tensor_parallel"] = tensor_parallel(fields, cluster, MemoryNeed(weights, 0.0))
    check_shared(fields, cluster, weights)
    return fields


def _fill_size_from_name(fields: dict[str, Any]) -> None:
    """Fill in the unset fields of a model without files: its size by its name.

    Names round down: models of `8b` have 8.03 to 8.2 billion parameters.
    """
    if fields["billions_of_parameters"] is None:
        parts = _SIZE.search(f"{fields['id']} {fields['name']}".lower())
        if parts is None:
            raise InputError(
                f"the size of model={fields['name']} is not at hand; give "
                "model.billions_of_parameters."
            )
        experts, number, unit = parts.groups()
        billions = float(number) * (1 if unit == "b" else 1e-3) * 1.03
        shared = 0.8 if experts else 1  # by the experts of a mixture, about
        fields["billions_of_parameters"] = round(billions * int(experts or 1) * shared, 3)
    fields["architecture"] = fields["architecture"] or "decoder"
    fields["max_model_len"] = fields["max_model_len"] or _LONGEST


def _last_part(path: str) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(path).name)


def _fill_from_files(fields: dict[str, Any], cluster: Mapping[str, Any]) -> None:
    revision = fields["revision"] if fields["source"] == "hub" else None
    source = _Source(fields["id"], revision, bool(fields["trust_remote_code"]))
    config = _load_config(source)
    text = config.get_text_config()
    if fields["architecture"] is None:
        fields["architecture"] = _find_architecture(source, config)
    is_encoder = fields["architecture"] == "encoder"
    stored = None
    if fields["billions_of_parameters"] is None:
        quantisation = read_quantisation(config.to_dict(), partial(_read_json, source))
        stored = _read_stored(source, bits(quantisation))
        fields["billions_of_parameters"] = stored.billions
    # Several heads of queries may share one of keys and values.
    key_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    per_token = 0.0  # numbers in the cache of keys and values
    if not is_encoder:
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        per_token = float(2 * text.num_hidden_layers * key_heads * width)
    if fields["max_model_len"] is None:
        own_length = _find_context_length(source, text, is_encoder=is_encoder)
        fields["max_model_len"] = max_model_len(own_length, per_token, cluster)
    if fields["tensor_parallel"] is None and is_encoder:
        fields["tensor_parallel"] = 1
    elif fields["tensor_parallel"] is None:
        width = bytes_per_number(
            fields["dtype"], cluster["device"], lambda: str(config.dtype).removeprefix("torch.")
        )
        billions = float(fields["billions_of_parameters"])
        weights = stored.n_bytes(width) if stored else billions * 1e9 * width
        need = MemoryNeed(weights, per_token * width, int(text.num_attention_heads), int(key_heads))
        fields["tensor_parallel"] = tensor_parallel(fields, cluster, need)


def _load_config(source: _Source) -> Any:
    from transformers import AutoConfig

    is_silent = source.revision is not None and not _hub_answers(source)
    try:
        return AutoConfig.from_pretrained(
            source.id,
            revision=source.revision,
            trust_remote_code=source.trust_remote_code,
            local_files_only=is_silent,
        )
    except Exception as error:
        problem = reason(error)
        if "trust_remote_code" in str(error):
            problem = "it is code of its own: read it, then pass model.trust_remote_code=true"
        is_folder = source.revision is None
        fix = "check the file" if is_folder else "check the id, the network and HF_TOKEN"
        if "torchvision::" in "".join(format_exception(error)):  # transformers imports it if it can
            problem = "the torchvision that is installed is not built for this torch"
            fix = "pip uninstall torchvision, which only models of images need"
        kind = NotAtHandError if is_silent else InputError
        raise kind(
            f"the config.json of model={source.id} cannot be read ({problem}); {fix}, or {_GIVE}."
        ) from error


def _hub_answers(source: _Source) -> bool:
    """Whether the hub can be reached: its client would try for half a minute to read a file."""
    from httpx2 import TransportError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(source.id, revision=source.revision, timeout=_HUB_S)
    except (TransportError, ConnectionError):
        return False
    except HfHubHTTPError:
        return True  # reading the file will raise the error
    return True


def _find_architecture(source: _Source, config: Any) -> str:
    from transformers.models.auto import modeling_auto as auto

    names = config.architectures or []
    masked = set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values())
    causal = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    causal |= set(auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values())
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
    """The headers of the safetensors of a folder, or of an id of the hub at a revision."""
    from huggingface_hub import get_local_safetensors_metadata, get_safetensors_metadata

    folder = name if revision is None else find_cached(name, revision)
    if folder is not None:
        return get_local_safetensors_metadata(folder)
    return get_safetensors_metadata(name, revision=revision)


def _read_stored(source: _Source, bits: int | None) -> _StoredValues:
    try:
        metadata = headers(source.id, source.revision)
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
            f"model={source.id} has no safetensors that give its number of parameters ({cause}); "
            f"{fix}give model.billions_of_parameters."
        ) from error
    return _StoredValues({str(kind): n for kind, n in metadata.parameter_count.items()}, bits)


def find_cached(model_id: str, revision: str) -> Path | None:
    """The snapshot in the hub's cache if it has all weights."""
    if (file := in_cache(model_id, "model.safetensors", revision)) is not None:
        return file.parent
    if (index := in_cache(model_id, "model.safetensors.index.json", revision)) is None:
        return None
    shards = set(json.loads(index.read_bytes())["weight_map"].values())
    return index.parent if all((index.parent / shard).is_file() for shard in shards) else None


def _find_context_length(source: _Source, text: Any, *, is_encoder: bool) -> int:
    values = [getattr(text, name, None) for name in _LENGTHS]
    if is_encoder:  # some reserve positions, which only their tokenizer states
        values.append(_read_json(source, "tokenizer_config.json").get("model_max_length"))
    lengths = [int(length) for length in values if length is not None and 0 < length < 1e9]
    if not lengths:
        raise InputError(
            f"the config.json of model={source.id} does not say how long a text may be; give "
            "model.max_model_len."
        )
    return min(lengths)


def _read_json(source: _Source, name: str) -> dict[str, Any]:
    return _load_json(_find_file(source, name), "repair it, or fetch it again")


def _load_json(path: Path | None, fix: str) -> dict[str, Any]:
    """The content of a JSON file; empty if there is no file."""
    with input_errors(f"{path}", fix):
        return {} if path is None else dict(json.loads(path.read_bytes()))


def _find_file(source: _Source, name: str) -> Path | None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    if source.revision is None:
        path = Path(source.id) / name
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(source.id, name, revision=source.revision))
    except EntryNotFoundError:
        return None


class MemoryNeed(NamedTuple):
    """Bytes of the weights, and of the cache per token; heads of queries and keys (0: unknown)."""

    weights: float
    cache_per_token: float
    heads: int = 0
    key_heads: int = 0

    def per_gpu(self, gpus: int) -> float:
        """Bytes of weights and cache on each of the GPUs; a head of keys is not divided further."""
        share = min(gpus, self.key_heads or gpus)
        return self.weights / gpus + _TOKENS * self.cache_per_token / share

    def divides(self, gpus: int) -> bool:
        """Whether each GPU gets as many heads; fewer heads of keys than GPUs are copied."""
        is_shared = self.key_heads % gpus == 0 or gpus % self.key_heads == 0
        return self.heads % gpus == 0 and is_shared


def bytes_per_number(setting: str, device: str, stored: Callable[[], str | None]) -> int:
    """Bytes of a number in memory, with `auto` as `processor.choose_dtype` settles it."""
    if setting == processor.AUTO:
        setting = processor.choose_dtype(processor.device(device), stored)
    return 4 if setting == "float32" else 2


def max_model_len(own_length: int, cached_per_token: float, cluster: Mapping[str, Any]) -> int:
    """The model's own context, at most 4,096; on a CPU no more than its cache holds in float32."""
    longest = min(own_length, _LONGEST)
    if processor.device(cluster["device"]) == "cpu" and cached_per_token:
        n_tokens = cluster["cpu_kvcache_gib"] * 2**30 / (4 * cached_per_token)
        longest = min(longest, int(n_tokens) // 128 * 128)
    return max(1, longest)


def tensor_parallel(model: Mapping[str, Any], cluster: Mapping[str, Any], need: MemoryNeed) -> int:
    """The smallest number of GPUs of a node (1 to 8) that hold the model; 1 if unknown."""
    if processor.device(cluster["device"]) == "cpu" or model["architecture"] == "encoder":
        return 1
    memory = gpu_bytes(cluster["hardware"])
    if memory is None:
        return 1
    room = memory * model["gpu_memory_utilization"] - _OVERHEAD
    for gpus in _ON_ONE_NODE:
        if need.divides(gpus) and need.per_gpu(gpus) / model["pipeline_parallel"] <= room:
            return gpus
    raise InputError(
        f"model={model['name']} needs {need.per_gpu(1) / 1e9:,.0f} GB for weights and cache, and 8 "
        f"GPUs of {memory / 1e9:,.0f} GB are too few; give model.pipeline_parallel, or "
        "model.tensor_parallel as you know it."
    )


def check_shared(model: Mapping[str, Any], cluster: Mapping[str, Any], weights: float) -> None:
    """Refuse more engines on one GPU than it has room for; `weights`: bytes of one engine."""
    n_engines, utilization = model["replicas"]["per_gpu"], model["gpu_memory_utilization"]
    is_shared = n_engines > 1 and processor.device(cluster["device"]) == "cuda"
    memory = gpu_bytes(cluster["hardware"]) if is_shared else None
    if memory is None or n_engines <= (n_fitting := engines_on(memory * utilization, weights)):
        return
    raise InputError(
        f"model.replicas.per_gpu={n_engines}: each engine of {model['name']} needs "
        f"{(weights + _OVERHEAD) / 1e9:,.0f} GB and a cache, and has "
        f"{memory * utilization / n_engines / 1e9:,.0f} of the GPU's {memory / 1e9:,.0f} GB; give "
        f"model.replicas.per_gpu={max(1, n_fitting)} or less."
    )


def engines_on(memory: float, weights: float) -> int:
    """How many engines with so many bytes of weights have room in so many bytes of a GPU."""
    return int(memory / (weights + _OVERHEAD))


def gpu_bytes(name: str | None) -> float | None:
    """The memory of a GPU of that name, or of this machine's first; None if it is unknown.

    >>> gpu_bytes("NVIDIA A100-SXM4-80GB"), gpu_bytes("NVIDIA H200"), gpu_bytes("some GPU")
    (80000000000.0, 141000000000.0, None)
    """
    if name is None:
        mib = processor.gpu_mib()
        return None if mib is None else mib * 2.0**20
    if gigabytes := re.search(r"(\d+)\s?Gi?B", name):
        return float(gigabytes[1]) * 1e9
    kind = gpu_kind(name)
    return None if kind is None else GPUS[kind].memory_gb * 1e9


def gpu_kind(name: str) -> str | None:
    """The kind of a GPU in its name.

    >>> gpu_kind("NVIDIA A100-SXM4-80GB"), gpu_kind("h100"), gpu_kind("some GPU")
    ('A100', 'H100', None)
    """
    types = re.findall(r"[A-Z]*\d+", name.upper())
    return next((kind for kind in types if kind in GPUS), None)


def quantisation_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The quantisation in a config.json, wherever vLLM looks for it; empty: not quantised.

    >>> quantisation_of({"text_config": {"compression_config": {"quant_method": "awq"}}})
    {'quant_method': 'awq'}
    """
    names = ("quantization_config", "compression_config")
    sections = (config, config.get("text_config") or {})
    candidates = (section.get(name) for section in sections for name in names)
    fields: Mapping[str, Any] = next(filter(None, candidates), {})
    producer = fields.get("quant_method") or (fields.get("producer") or {}).get("name") or ""
    method = str(producer).lower().replace("compressed_tensors", "compressed-tensors")
    inner = fields.get("quantization") or {}
    return {**fields, **inner, "quant_method": method} if method else {}


def read_quantisation(
    config: Mapping[str, Any], read: Callable[[str], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The quantisation in a config.json, or else in ModelOpt's own file."""
    return quantisation_of(config) or quantisation_of({"quantization_config": read(_MODELOPT_FILE)})


def bits(quantisation: Mapping[str, Any]) -> int | None:
    """The bits of a quantised parameter; if groups of layers differ, the fewest."""
    if "config_groups" in quantisation:
        groups = [group.get("weights") or {} for group in quantisation["config_groups"].values()]
        numbers = (int(group["num_bits"]) for group in groups if "num_bits" in group)
        return min(numbers, default=None)
    if n := quantisation.get("bits") or quantisation.get("w_bit"):
        return int(n)
    if quantisation.get("load_in_4bit") or quantisation.get("load_in_8bit"):
        return 4 if quantisation.get("load_in_4bit") else 8
    # The fields of Quark and torchao.
    weight = (quantisation.get("global_quant_config") or {}).get("weight")
    text = f"{_join_formats(quantisation)} {weight} {quantisation.get('quant_type')}".lower()
    return min(map(int, _BITS.findall(text)), default=None)


def _join_formats(quantisation: Mapping[str, Any]) -> str:
    names = [quantisation.get(name) for name in ("quant_method", "format", "quant_algo")]
    layers = (quantisation.get("quantized_layers") or {}).values()
    return " ".join(map(str, (*names, *(layer.get("quant_algo") for layer in layers)))).lower()


def scheme(model: Model) -> str | None:
    """The quantisation as `awq, 4 bits`; None if there is none."""
    quantisation = _quantisation_of_model(model)
    if not quantisation:
        return None
    n, method = bits(quantisation), str(quantisation["quant_method"])
    return f"{method}, {count(n, 'bit')}" if n else method


def weights_gb(model: Model) -> float:
    """The approximate size of the weights in GB, by the bits of a parameter."""
    n = bits(_quantisation_of_model(model)) or (32 if model.dtype == "float32" else 16)
    return (model.billions_of_parameters or 0) * n / 8


def check(model: Model, device: str, engine: str) -> None:
    """Refuse quantised weights that an engine cannot compute with on `cpu` or `cuda`."""
    quantisation, problem = _quantisation_of_model(model), None
    if quantisation and engine == "vllm":
        problem = _explain_missing_kernels(quantisation, device, model.dtype)
    elif quantisation.get("quant_method") == _BITSANDBYTES and find_spec(_BITSANDBYTES) is None:
        fix = f"give them with pip install {_BITSANDBYTES}, or {_TAKE_COPY}"
        problem = f"its kernels are not installed; {fix}"
    if problem:
        raise InputError(
            f"model={model.id} is quantised ({scheme(model)}), which {engine} does not run with "
            f"cluster.device={device}: {problem}."
        )


def _explain_missing_kernels(
    quantisation: Mapping[str, Any], device: str, dtype: str
) -> str | None:
    """Why vLLM cannot compute with such weights on a device, and the fix; None: it can."""
    method, schemes = quantisation["quant_method"], vllm_source.schemes()
    if schemes is not None and method not in schemes:
        return f"vLLM has no such scheme; {_TAKE_COPY}"
    kernels, capability = vllm_source.scheme(method), processor.compute_capability()
    formats, flags = _join_formats(quantisation), processor.flags()
    groups = quantisation.get("config_groups", {}).values()
    has_inputs = any((group.get("input_activations") or {}).get("strategy") for group in groups)
    is_packed = method in _INTEGERS or quantisation.get("format") == "pack-quantized"
    is_float = re.search("fp8|float-quantized", formats) is not None
    is_w8a8 = has_inputs and not is_packed and not is_float
    if device == "cpu":
        is_weights_only = is_float and any(not group.get("input_activations") for group in groups)
        names = f"{formats} wfp8a16" if is_weights_only else formats
        unknown = [name for name in sorted(vllm_source.without_cpu()) if name in names]
        if unknown and method != _EXPERTS:
            return f"vLLM has no kernels for {unknown[0].upper()} on CPUs; {_TAKE_COPY}"
        if is_w8a8 and "sse2" in flags and not flags & _VNNI:
            return "without VNNI in the CPU vLLM's sums of 8-bit products overflow; use a GPU"
        if is_w8a8 and dtype == "float32" and "amx_tile" in flags:
            return "on CPUs with AMX its layers need bfloat16; give model.dtype=bfloat16"
    elif kernels and capability is not None and capability < kernels.first_gpu:
        return f"it needs compute capability {kernels.first_gpu}, and this GPU has {capability}"
    if (kernels and dtype not in kernels.dtypes) or (is_packed and dtype == "float32"):
        return f"its layers do not compute in model.dtype={dtype}; give model.dtype=bfloat16"
    return None


def _quantisation_of_model(model: Model) -> Mapping[str, Any]:
    return read_quantisation(config_json(model), lambda name: config_json(model, name))


def config_json(model: Model, name: str = "config.json") -> Mapping[str, Any]:
    """The content of a file in the folder or the hub's cache; empty if it is not there."""
    if model.source not in ("hub", "path"):
        return {}
    on_hub = model.source == "hub"
    file = in_cache(model.id, name, model.revision) if on_hub else Path(model.id, name)
    return _load_json(file if file and file.is_file() else None, "fetch the model again")


def in_cache(model_id: str, name: str, revision: str) -> Path | None:
    """A file in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(model_id, name, revision=revision)
    return Path(path) if isinstance(path, str) else None


def check_wrapper(model: Model) -> None:
    """Refuse a model of images and text that vLLM cannot import, even for text alone."""
    config = config_json(model)
    is_qwen = any(name.startswith(_QWEN) for name in config.get("architectures") or ())
    if ("vision_config" in config or is_qwen) and find_spec("torchvision") is None:
        raise InputError(
            f"model={model.id} also reads images, or vLLM has it in one module with models that "
            "do, and does not import it without torchvision, which is not installed here; install "
            "the build of it that fits torch on every node, or take a model of text alone."
        )

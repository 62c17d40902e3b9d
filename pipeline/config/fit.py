"""Default text length and number of GPUs: the least that a model needs.

A GPU holds its part of the weights, its part of the cache for `_TOKENS` tokens (256 prompts of 128
tokens, which keep it busy), and `_OVERHEAD` of the engine's own.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from factsweep.operators.errors import InputError
from factsweep.pipeline.machine import dtype, processor

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


class Need(NamedTuple):
    """Bytes of the weights, and of the cache per token; heads of queries and keys (0: unknown)."""

    weights: float
    cache_per_token: float
    heads: int = 0
    key_heads: int = 0


def width(asked: str, device: str, stored: Callable[[], str | None]) -> int:
    """Bytes of a number in memory, with `auto` settled as for the run (pipeline.machine.dtype)."""
    settled = dtype.best(processor.device(device), stored) if asked == dtype.AUTO else asked
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

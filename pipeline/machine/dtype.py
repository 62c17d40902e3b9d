"""The type that a model computes in where `model.dtype` is `auto`, and what a slow one costs."""

from collections.abc import Callable
from typing import Literal

from factsweep.pipeline.machine import processor

Dtype = Literal["bfloat16", "float16", "float32"]

AUTO = "auto"
_FASTER = 8  # measured: float32 on a CPU without bfloat16, against bfloat16 on the same CPU

# Flags of /proc/cpuinfo, of x86-64 and of ARM, of processors that compute in a type.
_FLAGS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}
BFLOAT16_GPU = 8.0  # the first compute capability with bfloat16: Ampere


def best(device: str, stored: Callable[[], str | None]) -> Dtype:
    """The type for a decoder on `cuda` or `cpu`; `stored` tells the type of its weights.

    bfloat16 where the hardware computes in it, and float32 on any other CPU. An older GPU computes
    in float16, which is safe where the weights are stored in it: what bfloat16 and float32 hold may
    be too large for it. Where the driver sees no GPU, those of the workers are taken to be newer.
    """
    if device == "cpu":
        return "bfloat16" if cpu_computes_in("bfloat16") else "float32"
    capability = processor.compute_capability()
    if capability is None or capability >= BFLOAT16_GPU:
        return "bfloat16"
    return "float16" if stored() == "float16" else "float32"


def warning(dtype: str, device: str) -> str | None:
    """What a 16-bit type costs on a CPU that does not compute in it; null if it costs nothing."""
    if device != "cpu" or dtype not in _FLAGS or cpu_computes_in(dtype):
        return None
    return (
        f"model.dtype={dtype} is about {_FASTER} times slower than float32 on this CPU, which has "
        f"no instructions for it ({processor.cpu()}); give model.dtype=auto or model.dtype=float32."
    )


def cpu_computes_in(dtype: str) -> bool:
    """Whether this CPU has instructions for a 16-bit type."""
    return not _FLAGS[dtype].isdisjoint(processor.flags())

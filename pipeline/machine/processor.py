"""The CPU and GPU of this machine, by the operating system and the driver."""

import os
import platform
import re
import subprocess
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal

UNKNOWN_GPU = "unknown GPU"
_CPUINFO = Path("/proc/cpuinfo")
_BEFORE_VNNI = ("SSE41", "AVX", "AVX2")
_BEFORE_AVX512 = (*_BEFORE_VNNI, "AVX2_VNNI", "AVX2_VNNI_2")


def device(setting: str) -> str:
    """`cpu` or `cuda`; for `auto`, `cuda` if the CUDA build of vLLM is installed."""
    if setting != "auto":
        return setting
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return "cpu"
    return "cuda"


@lru_cache
def cpu() -> str:
    """The name of the CPU, with the numbers of its generation: AMD EPYC (family 26, model 2)."""
    fields = dict(re.findall(r"^(model name|cpu family|model)[ \t]*: (.+)$", _cpuinfo(), re.M))
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    numbers = f"family {fields.get('cpu family')}, model {fields.get('model')}"
    return f"{fields['model name'].strip()} ({numbers})"


@lru_cache
def flags() -> frozenset[str]:
    """The flags of the CPU as Linux names them: avx2, avx512_bf16; empty if it has none.

    Flags that oneDNN, which multiplies matrices, must not use (ONEDNN_MAX_CPU_ISA) are left out.
    """
    line = re.search(r"^(?:flags|Features)[ \t]*:(.*)$", _cpuinfo(), re.M)
    flags = line[1].split() if line else []
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    later = {"avx512": _BEFORE_AVX512, "amx": _BEFORE_AVX512, "avx_vnni": _BEFORE_VNNI}
    excluded = tuple(name for name, limits in later.items() if limit in limits)
    return frozenset(flag for flag in flags if not flag.startswith(excluded))


def _cpuinfo() -> str:
    return _CPUINFO.read_text() if _CPUINFO.is_file() else ""


@lru_cache
def gpu() -> str:
    """The name of the first GPU that this process sees: NVIDIA H100 80GB HBM3.

    The driver is asked, not torch: a process that has used CUDA cannot be forked any more.
    """
    return _first_gpu("name") or UNKNOWN_GPU


@lru_cache
def compute_capability() -> float | None:
    """The CUDA compute capability of that GPU: 9.0; None if there is none."""
    text = _first_gpu("compute_cap")
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else None


@lru_cache
def gpu_mib() -> int | None:
    """The memory of that GPU in MiB; None if there is none."""
    text = _first_gpu("memory.total").removesuffix(" MiB")
    return int(text) if text.isdigit() else None


def _first_gpu(field: str) -> str:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0] or "0"
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", f"--id={first}"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


Dtype = Literal["bfloat16", "float16", "float32"]

AUTO = "auto"
_FASTER = 8  # measured: float32 on a CPU without bfloat16, against bfloat16 on the same CPU

# Flags in /proc/cpuinfo, of x86-64 and of ARM, of processors that compute in a type.
_FLAGS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}
BFLOAT16_GPU = 8.0  # the first compute capability with bfloat16: Ampere


def choose_dtype(device: str, stored: Callable[[], str | None]) -> Dtype:
    """The type for a decoder on `cuda` or `cpu`; `stored` returns the type of its weights.

    bfloat16 if the hardware computes in it, and float32 on any other CPU. An older GPU computes in
    float16 if the weights are stored in it: values of bfloat16 and float32 may be too large. If the
    driver sees no GPU, those of the workers are assumed to be newer.
    """
    if device == "cpu":
        return "bfloat16" if cpu_computes_in("bfloat16") else "float32"
    capability = compute_capability()
    if capability is None or capability >= BFLOAT16_GPU:
        return "bfloat16"
    return "float16" if stored() == "float16" else "float32"


def warn_of_slow_dtype(dtype: str, device: str) -> str | None:
    """A warning about a 16-bit type that the CPU does not compute in; None if it does."""
    if device != "cpu" or dtype not in _FLAGS or cpu_computes_in(dtype):
        return None
    return (
        f"model.dtype={dtype} is about {_FASTER} times slower than float32 on this CPU, which has "
        f"no instructions for it ({cpu()}); give model.dtype=auto or model.dtype=float32."
    )


def cpu_computes_in(dtype: str) -> bool:
    """Whether this CPU has instructions for a 16-bit type."""
    return not _FLAGS[dtype].isdisjoint(flags())

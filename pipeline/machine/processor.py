"""What this machine is and what it can do, as the operating system and the driver tell."""

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


def device(asked: str) -> str:
    """`cpu` or `cuda`; of `auto`, `cuda` where the vLLM that is installed is the CUDA build."""
    if asked != "auto":
        return asked
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return "cpu"
    return "cuda"


@lru_cache
def cpu() -> str:
    """The name of the CPU, with the numbers of its generation: AMD EPYC (family 26, model 2)."""
    found = dict(re.findall(r"^(model name|cpu family|model)[ \t]*: (.+)$", _cpuinfo(), re.M))
    if "model name" not in found:
        return platform.processor() or platform.machine()
    numbers = f"family {found.get('cpu family')}, model {found.get('model')}"
    return f"{found['model name'].strip()} ({numbers})"


@lru_cache
def flags() -> frozenset[str]:
    """What the CPU can do, as Linux names it: avx2, avx512_bf16; nothing where none are told.

    What oneDNN, which multiplies the matrices, is told not to use (ONEDNN_MAX_CPU_ISA) is left out.
    """
    found = re.search(r"^(?:flags|Features)[ \t]*:(.*)$", _cpuinfo(), re.M)
    told = found[1].split() if found else []
    most = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    later = {"avx512": _BEFORE_AVX512, "amx": _BEFORE_AVX512, "avx_vnni": _BEFORE_VNNI}
    without = tuple(name for name, before in later.items() if most in before)
    return frozenset(each for each in told if not each.startswith(without))


def _cpuinfo() -> str:
    return _CPUINFO.read_text() if _CPUINFO.is_file() else ""


@lru_cache
def gpu() -> str:
    """The name of the first GPU that this process sees: NVIDIA H100 80GB HBM3.

    The driver is asked, not torch: what has touched CUDA once cannot be forked any more.
    """
    return _first_gpu("name") or UNKNOWN_GPU


@lru_cache
def compute_capability() -> float | None:
    """The CUDA compute capability of that GPU: 9.0; null where none is seen."""
    answer = _first_gpu("compute_cap")
    return float(answer) if re.fullmatch(r"\d+\.\d+", answer) else None


@lru_cache
def gpu_mib() -> int | None:
    """The memory of that GPU in MiB; null where none is seen."""
    answer = _first_gpu("memory.total").removesuffix(" MiB")
    return int(answer) if answer.isdigit() else None


def _first_gpu(field: str) -> str:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0] or "0"
    ask = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", f"--id={first}"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


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
    capability = compute_capability()
    if capability is None or capability >= BFLOAT16_GPU:
        return "bfloat16"
    return "float16" if stored() == "float16" else "float32"


def warning(dtype: str, device: str) -> str | None:
    """What a 16-bit type costs on a CPU that does not compute in it; null if it costs nothing."""
    if device != "cpu" or dtype not in _FLAGS or cpu_computes_in(dtype):
        return None
    return (
        f"model.dtype={dtype} is about {_FASTER} times slower than float32 on this CPU, which has "
        f"no instructions for it ({cpu()}); give model.dtype=auto or model.dtype=float32."
    )


def cpu_computes_in(dtype: str) -> bool:
    """Whether this CPU has instructions for a 16-bit type."""
    return not _FLAGS[dtype].isdisjoint(flags())

"""What this machine is called: rates that were measured on different hardware are never mixed."""

import os
import platform
import re
import subprocess
from functools import lru_cache
from pathlib import Path

UNKNOWN_GPU = "unknown GPU"
_CPUINFO = Path("/proc/cpuinfo")


def name(gpus: int) -> str:
    """The name of the GPU where an engine holds `gpus` of them, else that of the CPU."""
    return gpu() if gpus else cpu()


@lru_cache
def cpu() -> str:
    """The name of the CPU, with its numbers: AMD EPYC (family 26, model 2).

    A virtual machine may call several generations by one name.
    """
    text = _CPUINFO.read_text() if _CPUINFO.is_file() else ""
    found = dict(re.findall(r"^(model name|cpu family|model)[ \t]*: (.+)$", text, re.MULTILINE))
    if "model name" not in found:
        return platform.processor() or platform.machine()
    numbers = f"family {found.get('cpu family')}, model {found.get('model')}"
    return f"{found['model name'].strip()} ({numbers})"


@lru_cache
def gpu() -> str:
    """The name of the first GPU that this process sees: NVIDIA H100 80GB HBM3.

    The driver is asked, not torch: what has touched CUDA once cannot be forked any more.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0] or "0"
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", f"--id={first}"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN_GPU
    return done.stdout.strip() or UNKNOWN_GPU

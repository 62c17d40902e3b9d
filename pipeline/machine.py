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
    """The name of the CPU, as its maker gives it: AMD EPYC 7763 64-Core Processor."""
    text = _CPUINFO.read_text() if _CPUINFO.is_file() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


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

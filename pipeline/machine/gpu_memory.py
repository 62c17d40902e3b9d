"""How much memory a GPU has: by its name, or from the driver of this machine."""

import re

from factsweep.pipeline.machine import processor

# In GB, of GPUs that do not have it in their names.
_GB = {
    "B200": 180,
    "H200": 141,
    "H100": 80,
    "H800": 80,
    "A100": 40,
    "L40": 48,
    "A40": 48,
    "A6000": 48,
    "4090": 24,
    "3090": 24,
    "A10": 24,
    "L4": 24,
    "T4": 16,
    "V100": 16,
    "P100": 16,
}


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

"""The command `factsweep` in a process of its own, with a Ray and engines of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence


def factsweep(verb: str, overrides: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What the verb printed, and its exit code."""
    command = [sys.executable, "-m", "factsweep.pipeline.cli", verb, *overrides]
    # Marks of this process's own Ray and vLLM would be taken for the new one's.
    own = ("RAY_", "VLLM_", "TORCHDYNAMO_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

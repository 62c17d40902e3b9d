"""The folder for what is fetched or converted once: $FACTSWEEP_HOME, or ~/.cache/factsweep."""

import os
from pathlib import Path


def home() -> Path:
    """The folder; it may not be there yet."""
    return Path(os.environ.get("FACTSWEEP_HOME", Path.home() / ".cache" / "factsweep"))

"""The folder for what is fetched or converted once: $FACTSWEEP_HOME, or in the user's cache."""

import os
from pathlib import Path


def home() -> Path:
    """The folder; it may not be there yet.

    Without FACTSWEEP_HOME it is factsweep in $XDG_CACHE_HOME, by default ~/.cache.
    """
    if own := os.environ.get("FACTSWEEP_HOME"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "factsweep"

"""The checkout that this code is of."""

import subprocess
from pathlib import Path


def commit() -> str | None:
    """The commit of this checkout, null outside one."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None

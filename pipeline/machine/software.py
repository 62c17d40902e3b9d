"""What software runs here: the commit of this checkout, and the versions of libraries."""

import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path


def commit() -> str | None:
    """The commit of this checkout; null outside one, in a virtual environment of another say."""
    here = Path(__file__).resolve().parent
    git = ["git", "-C", str(here), "rev-parse", "--show-prefix", "HEAD"]
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    if done.returncode:
        return None
    inside, found = done.stdout.splitlines()
    return found if inside == f"{here.parent.name}/{here.name}/" else None


def versions(*names: str) -> dict[str, str]:
    """The version of each distribution."""
    return {name: _version(name) for name in names}


@cache  # a recipe asks each time, and five milliseconds go by
def _version(name: str) -> str:
    return metadata.version(name)

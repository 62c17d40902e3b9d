"""Versions of software: the commit of this checkout, and the versions of libraries."""

import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path


def commit() -> str | None:
    """The commit of this checkout; None outside one, or in a virtual environment of another."""
    folder = Path(__file__).resolve().parent
    git = ["git", "-C", str(folder), "rev-parse", "--show-prefix", "HEAD"]
    try:
        process = subprocess.run(git, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    if process.returncode:
        return None
    prefix, commit = process.stdout.splitlines()
    return commit if prefix == f"{folder.parent.name}/{folder.name}/" else None


def versions(*names: str) -> dict[str, str]:
    """The version of each distribution."""
    return {name: _version(name) for name in names}


@cache  # each recipe needs it, and it takes five milliseconds
def _version(name: str) -> str:
    return metadata.version(name)

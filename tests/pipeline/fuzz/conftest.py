"""Folders for what examples write, and the small run."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the examples write."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def fresh(place: Path) -> Callable[[], Path]:
    """Makes a new, empty folder for an example."""
    numbers = iter(range(10**9))

    def make() -> Path:
        folder = place / str(next(numbers))
        folder.mkdir()
        return folder

    return make


@pytest.fixture(scope="module")
def base(small: list[str], place: Path) -> list[str]:
    """The small run, greedy answers alone."""
    return [
        *small,
        "decoding.samples.n_prompts=0",
        "decoding.canary_prompts=0",
        f"artifacts={place}/artifacts",
        f"results={place}/results",
    ]

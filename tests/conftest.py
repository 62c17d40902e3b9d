"""What many tests share: real facts, a real tokenizer, a real engine."""

import os

# Read when these libraries are imported. Two workers share the cores, and the tables are small.
for name, value in {
    "POLARS_MAX_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine stays in this process
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}.items():
    os.environ.setdefault(name, value)

import runpy
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import settings

from operators.datasets.facts import Facts
from operators.engines.kind import Start
from operators.engines.vllm import VllmEngine
from pipeline.config.settings import load
from pipeline.inputs import catalog, models
from pipeline.inputs.models import Weights

ROOT = Path(__file__).parent.parent

# How many examples a law is tried on: few in `make test`, many in the rest of `make test-all`.
# A busy machine would fail a law for its time; the time limit of a whole test is pytest's.
settings.register_profile("few", deadline=None, max_examples=10)
settings.register_profile("many", deadline=None, max_examples=100)
settings.load_profile("few")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests for pytest-xdist; the longest group comes first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: _group(item) != "engines")


def _group(item: pytest.Item) -> str:
    """The tests that one worker runs: all with Ray or real weights, or else those of a module.

    So Ray is started once, and the weights are converted and loaded once.
    """
    fixtures = getattr(item, "fixturenames", ())
    return "engines" if {"_ray", "smollm2"} & set(fixtures) else item.path.stem


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The published files of other benchmarks, which do not ship with factsweep."""
    folder = Path(os.environ.get("FACTSWEEP_SHARED_DATA", ROOT / "../shared/data")).resolve()
    if not folder.is_dir():
        absent = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        absent(f"{folder} is missing; FACTSWEEP_SHARED_DATA names the real data of others")
    return folder


@pytest.fixture(scope="session")
def mini() -> Facts:
    """The facts of myriadlama-mini."""
    return catalog.read(catalog.entry("myriadlama-mini"))


@pytest.fixture(scope="session")
def real_rows(shared_data: Path, mini: Facts) -> pl.DataFrame:
    """X-FACTR's facts as MyriadLAMA rows."""
    rows = runpy.run_path(str(ROOT / "tests/real_facts.py"))["rows"]
    found: pl.DataFrame = rows(shared_data / "xfactr", mini.templates)
    return found


@pytest.fixture(scope="session")
def tiny_bert(mini: Facts) -> Any:
    """A small masked model (`model`, `tokenizer`) that knows some of myriadlama-mini."""
    return runpy.run_path(str(ROOT / "tests/tiny_bert.py"))["train"](mini)


@pytest.fixture(scope="session")
def smollm2() -> Weights:
    """The packaged weights; the first use on a machine converts them, which takes half a minute."""
    return models.resolve(load(["model=smollm2-135m", "model.dtype=float32"]).model)


@pytest.fixture(scope="session")
def tokenizer(smollm2: Weights) -> Any:
    """The tokenizer of SmolLM2."""
    return models.tokenizer(smollm2)


@pytest.fixture(scope="session")
def engine(smollm2: Weights) -> VllmEngine:
    """SmolLM2 in vLLM; in float32, where what else is in a batch does not change an answer."""
    folder = models.location(smollm2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # vLLM looks through all of torch
        return VllmEngine(Start(folder, revision=None, dtype="float32", max_model_len=1024))

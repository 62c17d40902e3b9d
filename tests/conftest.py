"""What many tests share: real facts, a real tokenizer, a real engine."""

import os
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

# Read when vLLM and huggingface_hub are imported, which no test may do before this.
for name, value in {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine stays in this process
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}.items():
    os.environ.setdefault(name, value)

# A busy machine would fail a law for its time; the time limit of a whole test is pytest's.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The published files of other benchmarks, which do not ship with factsweep."""
    folder = Path(os.environ.get("FACTSWEEP_SHARED_DATA", ROOT / "../shared/data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing; FACTSWEEP_SHARED_DATA names the real data of others")
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

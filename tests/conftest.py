"""What many tests share: real facts, a real tokenizer, a real engine."""

import atexit
import gc
import os

from factsweep.pipeline.machine.streams import end

_exit_codes: list[int] = []
# Registered before what registers more is imported, and so run last.
atexit.register(lambda: end(_exit_codes[-1]) if _exit_codes else None)

# Read when these libraries are imported. Two workers share the cores, and the tables are small.
for name, value in {
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",  # threads of a run's engine would spin on cores that others need
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else each engine takes all cores for itself
    "HF_HUB_OFFLINE": "1",
    # As for a Ray that a driver starts (cluster/ray_cluster.py), without statistics of use.
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Else each process of vLLM compiles how it counts the tokens above one, for seconds of CPU: a
    # whole number in either way, and compiled where the command line is tested (tests/command.py).
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine stays in this process
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}.items():
    os.environ.setdefault(name, value)
os.fsync = lambda _file: None  # no test cuts the power

import re
import runpy
import sys
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.register_assert_rewrite("tests.builders")

from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from factsweep.operators.datasets.facts import Facts, Slice
from factsweep.operators.datasets.facts import slice_single_objects as sliced
from factsweep.operators.engines.protocol import Start
from factsweep.operators.engines.vllm import VllmEngine
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.inputs.models import Weights

ROOT = Path(__file__).parent.parent
FAULTS = ROOT / "tests/faults"

# How many examples a law is tried on: few in `make test`, many in `make test-rest`, where they pay.
# A busy machine would fail a law for its time; the time limit of a whole test is pytest's.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("few", max_examples=10, **PATIENT)
settings.register_profile("many", max_examples=100, **PATIENT)
settings.load_profile("few")

# What is loaded once for all who ask for it, so that they go to one worker: a word in their module.
LOADED = {
    "nodes": re.compile(r"\bray\.cluster_utils\b"),  # before the process has a Ray of its own
    "weights": re.compile(r"\b(smollm2: Weights|engine: VllmEngine|tiny_bert)\b"),
    "ray": re.compile(r"\b(shared_ray|ray_address)\b"),
}


class ByModule(LoadScopeScheduling):
    """A module goes to one worker, and all that load the same go to the same one.

    So the weights are loaded once. (`--dist loadgroup` does not group with pytest 9.2:
    https://github.com/pytest-dev/pytest-xdist/issues/1386.)
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return group(ROOT / module) or module


@cache
def group(module: Path) -> str:
    """What the tests of a module share with others: a name of LOADED; "" with nothing."""
    text = module.read_text()
    return next((name for name, pattern in LOADED.items() if pattern.search(text)), "")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModule:
    """With `-n 2`, share the tests out by module."""
    return ByModule(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name what fails at once: a run that is cut off has no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stderr.write(f"\n{report.nodeid} ({report.when}) failed\n")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the exit code of the process, even if libraries crash at its end."""
    _exit_codes.append(int(session.exitstatus))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes longest first, so that no worker begins with it when the other is done.

    A worker that is free takes the next: one has faults, while the other loads weights and a Ray.
    """
    sizes = Counter(item.path for item in items if item.path.parent == FAULTS)
    faults = [path for path, _ in sizes.most_common() if not group(path)]
    order = ["nodes", "weights", *faults[:1], "ray", *faults[1:], ""]
    items.sort(key=lambda item: order.index(item.path if item.path in faults else group(item.path)))


def pytest_collection_finish() -> None:
    """Have the garbage collector skip imported objects, which are millions.

    To look through them again and again took a fifth of the time of the fast tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With `--durations=…`, sum them up by module."""
    if config.getoption("durations") is None:
        return
    seconds_by_module = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "when"):
                seconds_by_module[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section(f"{sum(seconds_by_module.values()):.0f} seconds of tests, by module")
    for module, seconds in seconds_by_module.most_common():
        terminalreporter.write_line(f"{seconds:8.1f} {module}")


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
    return catalog.read_facts(catalog.entry("myriadlama-mini"))


@pytest.fixture(scope="session")
def distractors_mini() -> Facts:
    """The facts of distractors-mini, each with one object, and its knowledge base."""
    return sliced(catalog.read_facts(catalog.entry("distractors-mini")), Slice())


@pytest.fixture(scope="session")
def real_rows(shared_data: Path, mini: Facts) -> pl.DataFrame:
    """X-FACTR's facts as MyriadLAMA rows."""
    rows = runpy.run_path(str(ROOT / "tests/real_facts.py"))["rows"]
    rows_of_facts: pl.DataFrame = rows(shared_data / "xfactr", mini.templates)
    return rows_of_facts


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
    """SmolLM2 in vLLM; in float32, where what else is in a batch does not change an answer.

    It reads 512 tokens a step: when it starts, it tries a step that is full.
    """
    folder, options = models.location(smollm2), {"max_num_batched_tokens": 512}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # vLLM looks through all of torch
        return VllmEngine(Start(folder, None, "float32", max_model_len=512, arguments=options))

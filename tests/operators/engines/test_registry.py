"""The registry of engines, and what vLLM is started with on a GPU (a stand-in for it)."""

import os
import re
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.protocol import NOT_INSTALLED, Start, find_installed
from factsweep.operators.engines.vllm.start import NO_ANSWER, load

SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
METHODS = {"generate": "answers", "score": "scores", "fill": "predictions", "prefer": "preferences"}
FAKE = ENGINES["fake"]


def test_versions_of_no_two_engines_are_the_same() -> None:
    versions = [kind.version() for kind in ENGINES.values()]
    assert len(set(versions)) == len(versions)


def test_version_of_an_engine_that_is_not_installed_is_none() -> None:
    assert find_installed("no-such-distribution") == NOT_INSTALLED


def test_variables_that_change_no_answer_are_variables_of_vllm() -> None:
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    sources = [Path(spec.origin).parent / file for file in ("envs.py", "v1/worker/cpu_worker.py")]
    variables = set(re.findall(r"VLLM_\w+", "".join(path.read_text() for path in sources)))
    assert [p for p in NO_ANSWER if not any(fnmatchcase(name, p) for name in variables)] == []


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_ability_has_a_real_engine(name: str) -> None:
    assert any(name in kind.abilities for kind in ENGINES.values() if kind is not FAKE)


def test_fake_engine_has_every_ability() -> None:
    engine = FAKE.load(Start("nowhere", None, "float32", 8))
    assert all(hasattr(engine, METHODS[ability]) for ability in FAKE.abilities)
    assert set(FAKE.abilities) == set(METHODS)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What vLLM is called with, and the sampler that it would see."""
    calls: list[dict[str, Any]] = []
    platform = ModuleType("platform")
    platform.is_cpu = lambda: False  # type: ignore[attr-defined]
    library, platforms = ModuleType("vllm"), ModuleType("vllm.platforms")
    library.LLM = lambda **options: calls.append(  # type: ignore[attr-defined]
        {**options, "sampler": os.environ.get(SAMPLER)}
    )
    platforms.current_platform = platform  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", library)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    monkeypatch.setenv(SAMPLER, "undo")  # so that what is set here ends with the test
    monkeypatch.delenv(SAMPLER)
    return calls


def test_load_on_cuda_needs_no_nvcc_for_the_sampler_unless_it_is_asked_for(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(Start("m", None, "bfloat16", 128, device="cuda"))
    monkeypatch.setenv(SAMPLER, "1")
    load(Start("m", None, "bfloat16", 128, device="cuda"))
    assert [call["sampler"] for call in started] == ["0", "1"]


PLAIN = {
    "model": "m",
    "revision": None,
    "tokenizer_revision": None,
    "dtype": "float16",
    "seed": 0,
    "max_model_len": 77,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "trust_remote_code": False,
    "gpu_memory_utilization": 0.9,
    "enable_prefix_caching": True,
    "disable_log_stats": True,
    "language_model_only": True,
    "worker_extension_cls": "factsweep.operators.engines.vllm.reload.ReloadingWorker",
    "sampler": "0",
}
CONFIG: dict[str, Any] = {"compilation_config": {"mode": 0}}
ON_TWO = {
    "tensor_parallel_size": 2,  # they sum alike with and without nvcc
    "compilation_config": {"pass_config": {"fuse_allreduce_rms": False}},
}
STARTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"tensor_parallel": 2}, ON_TWO),
    ({"tensor_parallel": 2, "arguments": CONFIG}, {"tensor_parallel_size": 2, **CONFIG}),
    (
        {"pipeline_parallel": 2},
        {"pipeline_parallel_size": 2, "distributed_executor_backend": "ray"},
    ),
    ({"ability": "prefer"}, {"max_logprobs": -1}),
    ({"revision": "c0ffee"}, {"revision": "c0ffee", "tokenizer_revision": "c0ffee"}),
    ({"trust_remote_code": True}, {"trust_remote_code": True}),
    ({"gpu_memory_utilization": 0.5}, {"gpu_memory_utilization": 0.5}),
    (
        {"device": "cpu"},
        {"enforce_eager": True, "block_size": 32, "enable_chunked_prefill": False, "sampler": None},
    ),
]


@pytest.mark.parametrize(("fields", "options"), STARTS)
def test_load_hands_vllm_the_options_of_a_start_and_no_others(
    fields: dict[str, Any],
    options: dict[str, Any],
    started: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    platform = sys.modules["vllm.platforms"].current_platform
    monkeypatch.setattr(platform, "is_cpu", lambda: fields.get("device") == "cpu")
    load(replace(Start("m", None, "float16", 77, device="cuda"), **fields))
    assert started == [{**PLAIN, **options}]

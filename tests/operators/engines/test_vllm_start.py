"""What vLLM is started with where there is a GPU; a stand-in, since there is none here."""

import os
import sys
from types import ModuleType
from typing import Any

import pytest

from factsweep.operators.engines.kind import Start
from factsweep.operators.engines.vllm.start import load

SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What vLLM is called with, and the sampler that it would see."""
    calls: list[dict[str, Any]] = []
    platform = ModuleType("platform")
    platform.is_cpu = lambda: False  # type: ignore[attr-defined]
    library, platforms = ModuleType("vllm"), ModuleType("vllm.platforms")
    library.LLM = lambda **given: calls.append(  # type: ignore[attr-defined]
        {**given, "sampler": os.environ.get(SAMPLER)}
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
    assert [each["sampler"] for each in started] == ["0", "1"]


def test_load_on_several_gpus_sums_alike_with_and_without_nvcc(
    started: list[dict[str, Any]],
) -> None:
    own = {"compilation_config": {"mode": 0}}
    for start in (
        Start("m", None, "bfloat16", 128, device="cuda"),
        Start("m", None, "bfloat16", 128, device="cuda", tensor_parallel=2),
        Start("m", None, "bfloat16", 128, device="cuda", tensor_parallel=2, arguments=own),
    ):
        load(start)
    found = [each.get("compilation_config") for each in started]
    assert found == [None, {"pass_config": {"fuse_allreduce_rms": False}}, {"mode": 0}]


def test_load_hands_every_option_to_vllm(started: list[dict[str, Any]]) -> None:
    options = {"kv_cache_dtype": "fp8", "max_num_seqs": 7}
    start = Start(
        *("m", "c0ffee", "float16", 77),
        device="cuda",
        tensor_parallel=4,
        trust_remote_code=True,
        gpu_memory_utilization=0.5,
        arguments=options,
    )
    load(start)
    [given] = started
    expected = {
        "model": "m",
        "revision": "c0ffee",
        "tokenizer_revision": "c0ffee",
        "dtype": "float16",
        "max_model_len": 77,
        "tensor_parallel_size": 4,
        "trust_remote_code": True,
        "gpu_memory_utilization": 0.5,
        "language_model_only": True,
        **options,
    }
    assert given.items() >= expected.items()

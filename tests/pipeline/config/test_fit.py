"""Fit: the smallest number of GPUs that hold a model."""

from typing import Any

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import described
from factsweep.pipeline.config.described import Need, check_shared, tensor_parallel
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.machine import processor
from tests.messages import naming

MODEL: dict[str, Any] = {
    "name": "m",
    "architecture": "decoder",
    "gpu_memory_utilization": 0.9,
    "pipeline_parallel": 1,
}
H100 = {"device": "cuda", "hardware": "NVIDIA H100 80GB HBM3"}
# Llama 3: bytes of bfloat16 weights, of the cache per token, and heads of queries and of keys.
LLAMA_8B = Need(16.1e9, 131_072, 32, 8)
LLAMA_70B = Need(141.1e9, 327_680, 64, 8)


@pytest.mark.parametrize(
    ("need", "hardware", "expected"),
    [
        (LLAMA_8B, "NVIDIA H100 80GB HBM3", 1),
        (LLAMA_8B, "Tesla T4", 2),
        (LLAMA_70B, "NVIDIA H100 80GB HBM3", 4),
        (LLAMA_70B, "NVIDIA H200", 2),
        (LLAMA_70B, "NVIDIA L40S", 4),
        (LLAMA_8B, "a GPU that nobody knows", 1),
    ],
)
def test_tensor_parallel_is_the_smallest_that_fits(
    need: Need, hardware: str, expected: int
) -> None:
    assert tensor_parallel(MODEL, {**H100, "hardware": hardware}, need) == expected


def test_tensor_parallel_divides_the_heads() -> None:
    one = Need(80e9, 327_680, 12, 12)
    assert tensor_parallel(MODEL, H100, one) == 2
    assert tensor_parallel(MODEL, H100, one._replace(weights=141.1e9)) == 4


def test_tensor_parallel_divides_the_heads_of_keys() -> None:
    six = Need(80e9, 327_680, 48, 6)  # 4 of 6 heads of keys would have no GPU of their own
    assert tensor_parallel(MODEL, H100, six) == 2
    with pytest.raises(InputError, match=naming("8 GPUs")):
        tensor_parallel(MODEL, H100, six._replace(weights=141.1e9))


def test_tensor_parallel_copies_a_head_of_keys_that_cannot_be_divided() -> None:
    whole = Need(100e9, 64e9 / described._TOKENS, 32, 8)
    assert tensor_parallel(MODEL, H100, whole) == 4
    with pytest.raises(InputError, match=naming("8 GPUs")):  # one head: 64 GB of cache on every GPU
        tensor_parallel(MODEL, H100, whole._replace(key_heads=1))


@pytest.mark.parametrize(
    ("capability", "stored", "width"),
    [(9.0, "bfloat16", 2), (7.5, "float16", 2), (7.5, "bfloat16", 4), (None, None, 2)],
)
def test_width_auto_is_that_of_the_dtype_that_the_run_settles_on(
    capability: float | None, stored: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "compute_capability", lambda: capability)
    assert described.bytes_per_number("auto", "cuda", lambda: stored) == width


def test_tensor_parallel_on_a_cpu_is_one() -> None:
    assert tensor_parallel(MODEL, {"device": "cpu", "hardware": None}, LLAMA_70B) == 1


def test_tensor_parallel_eight_too_few_names_the_field_to_give() -> None:
    with pytest.raises(InputError, match=naming("model.pipeline_parallel")):
        tensor_parallel(MODEL, H100, Need(1.3e12, 70_000, 128, 8))


def test_engines_that_share_a_gpu_are_refused_where_they_do_not_fit() -> None:
    two, one = ({**MODEL, "replicas": {"per_gpu": n}} for n in (2, 1))
    check_shared(two, H100, 30e9)
    check_shared(one, H100, 70e9)
    check_shared(two, {"device": "cuda", "hardware": "some GPU"}, 70e9)
    with pytest.raises(InputError, match=naming("per_gpu=2", "42 GB", "36", "80 GB", "per_gpu=1")):
        check_shared(two, H100, 40e9)


def test_tensor_parallel_pipeline_shares_the_weights() -> None:
    two = {**MODEL, "pipeline_parallel": 2}
    assert tensor_parallel(two, H100, LLAMA_70B) == 2


@pytest.mark.parametrize(("own", "expected"), [(131_072, 4096), (2048, 2048)])
def test_max_model_len_is_the_models_own_within_bounds(own: int, expected: int) -> None:
    assert (
        described.max_model_len(own, 32_768, {"device": "cuda", "cpu_kvcache_gib": 2}) == expected
    )


def test_model_of_a_paper_keeps_its_gpus() -> None:
    run = load(["model=llama3-70b", "cluster.device=cuda", "cluster.hardware='NVIDIA H200'"])
    assert run.model.tensor_parallel == 4

"""Hardware: what the engines of a run hold."""

import pytest

from factsweep.pipeline.cluster import hardware
from factsweep.pipeline.cluster.hardware import device, gpus_per_engine
from factsweep.pipeline.config.settings import load


def test_device_asked_for_is_taken() -> None:
    assert device(load(["cluster.device=cuda"]).cluster) == "cuda"


def test_gpus_per_engine_tensor_parallel_model_holds_as_many() -> None:
    run = load(["model=llama3-70b", "cluster.device=cuda"])
    assert gpus_per_engine(run) == 4


def test_gpus_per_engine_without_gpu_is_none() -> None:
    run = load(["model=llama3-70b", "cluster.device=cpu"])
    assert gpus_per_engine(run) == 0


def test_environment_cpu_engine_has_one_process_and_its_cache() -> None:
    run = load(["cluster.device=cpu", "cluster.cpu_kvcache_gib=3"])
    variables = hardware.variables(run)
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert variables["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_environment_hands_no_secret_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_notforanyone")
    assert "hf_notforanyone" not in hardware.variables(load([])).values()


def test_environment_model_of_the_hub_may_use_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert "HF_HUB_OFFLINE" not in hardware.variables(load(["model=llama3-8b"]))
    assert hardware.variables(load([]))["HF_HUB_OFFLINE"] == "1"


def test_environment_where_the_hub_did_not_answer_is_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    run = load(["model=llama3-8b"])
    assert hardware.variables(run, offline=True)["HF_HUB_OFFLINE"] == "1"


def test_environment_batch_invariant_sets_vllms_switch() -> None:
    run = load(["decoding.determinism=batch_invariant", "cluster.device=cuda"])
    assert hardware.variables(run)["VLLM_BATCH_INVARIANT"] == "1"


def test_environment_of_the_driver_changes_no_determinism(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert hardware.variables(load([]))["VLLM_BATCH_INVARIANT"] == "0"


def test_environment_switch_of_vllm_reaches_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_MLA_DISABLE", "1")
    monkeypatch.setenv("VLLM_API_KEY", "notforanyone")
    variables = hardware.variables(load([]))
    assert variables["VLLM_MLA_DISABLE"] == "1"
    assert "VLLM_API_KEY" not in variables


def test_environment_tensor_parallel_workers_have_cores_of_their_own() -> None:
    run = load(["model.tensor_parallel=2", "cluster.device=cpu", "cluster.num_cpus=4"])
    variables = hardware.variables(run)
    assert variables["VLLM_CPU_OMP_THREADS_BIND"] == "0-1|2-3"
    assert variables["OMP_NUM_THREADS"] == "2"


def test_environment_engine_on_cores_keeps_the_memory_of_its_logits() -> None:
    asked = (["cluster.device=cpu"], ["cluster.device=cuda"], ["decoding.engine=fake"])
    on_cores, on_gpus, of_a_fake_one = (hardware.variables(load(each)) for each in asked)
    logits = 256 * 151_936 * 4  # bytes, of Qwen's vocabulary
    kept, trimmed = (int(on_cores[f"MALLOC_{each}_THRESHOLD_"]) for each in ("MMAP", "TRIM"))
    assert logits < kept < trimmed
    assert on_cores["MALLOC_ARENA_MAX"] == "1"  # a thread's own arena has no room for them
    assert not any(name.startswith("MALLOC_") for name in (*on_gpus, *of_a_fake_one))

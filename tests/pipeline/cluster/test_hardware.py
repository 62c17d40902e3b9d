"""Hardware: the GPUs and variables of the engines of a run."""

import pytest

from factsweep.pipeline.cluster import hardware
from factsweep.pipeline.cluster.hardware import gpus_per_engine
from factsweep.pipeline.config.settings import load


def test_gpus_per_engine_tensor_parallel_model_holds_as_many() -> None:
    for kind, n in {"cuda": 4, "cpu": 0}.items():
        run = load(["model=llama3-70b", f"cluster.device={kind}"])
        assert (run.device, gpus_per_engine(run)) == (kind, n)


def test_environment_cpu_engine_has_one_process_its_cache_and_its_cores() -> None:
    overrides = ["cluster.device=cpu", "cluster.cpu_kvcache_gib=3", "cluster.num_cpus=4"]
    variables = hardware.worker_variables(load([*overrides, "model.tensor_parallel=2"]))
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert variables["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert variables["VLLM_CPU_OMP_THREADS_BIND"] == "0-1|2-3"
    assert variables["OMP_NUM_THREADS"] == "2"


def test_environment_has_switches_of_vllm_but_no_secret_and_no_determinism_of_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = {"HF_TOKEN": "hf_notforanyone", "VLLM_API_KEY": "x", "VLLM_MLA_DISABLE": "1"}
    for name, value in {**planted, "VLLM_BATCH_INVARIANT": "1"}.items():
        monkeypatch.setenv(name, value)
    variables = hardware.worker_variables(load([]))
    assert variables["VLLM_MLA_DISABLE"] == "1"
    assert variables["VLLM_BATCH_INVARIANT"] == "0"
    assert not {"HF_TOKEN", "VLLM_API_KEY"} & variables.keys()
    run = load(["decoding.determinism=batch_invariant", "cluster.device=cuda"])
    assert hardware.worker_variables(run)["VLLM_BATCH_INVARIANT"] == "1"


def test_environment_model_of_the_hub_may_use_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert "HF_HUB_OFFLINE" not in hardware.worker_variables(load(["model=llama3-8b"]))
    assert hardware.worker_variables(load([]))["HF_HUB_OFFLINE"] == "1"
    offline = hardware.worker_variables(
        load(["model=llama3-8b"]), offline=True
    )  # it did not answer
    assert offline["HF_HUB_OFFLINE"] == "1"


def test_environment_engine_on_cores_keeps_the_memory_of_its_logits() -> None:
    settings = (["cluster.device=cpu"], ["cluster.device=cuda"], ["decoding.engine=fake"])
    on_cores, on_gpus, of_a_fake_one = (hardware.worker_variables(load(each)) for each in settings)
    logits = 256 * 151_936 * 4  # bytes, of Qwen's vocabulary
    mapped, trimmed = (int(on_cores[f"MALLOC_{limit}_THRESHOLD_"]) for limit in ("MMAP", "TRIM"))
    assert logits < mapped < trimmed
    assert on_cores["MALLOC_ARENA_MAX"] == "1"  # a thread's own arena has no room for them
    assert not any(name.startswith("MALLOC_") for name in (*on_gpus, *of_a_fake_one))

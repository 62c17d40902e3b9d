"""What holds of every kind of cluster."""

from pathlib import Path

import pytest

from operators.errors import InputError
from pipeline.cli import main
from pipeline.config.settings import choices, load
from pipeline.execution.plan import planned
from pipeline.launchers import LAUNCHERS, order

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
    assert err.startswith("factsweep: artifacts=… has credentials in its URL")


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
    assert err.startswith("factsweep: what would be submitted holds a secret")


@pytest.mark.parametrize("kind", KINDS)
def test_launch_changes_no_fingerprint(kind: str, small: list[str], tmp_path: Path) -> None:
    names = [
        [
            each.folder
            for each in planned(load([*small, f"artifacts={tmp_path}", *more]))
            .branches[0]
            .artifacts()
        ]
        for more in ((), (f"cluster={kind}",))
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize(("kind", "tool"), [("slurm", "sbatch"), ("kuberay", "kubectl")])
def test_launch_without_the_scheduler_says_so(
    kind: str, tool: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["launch", f"cluster={kind}", *STORES]) == 2
    assert capsys.readouterr().err.startswith(f"factsweep: {tool} is not on this machine; launch")


def test_load_unknown_kind_of_launch_is_named() -> None:
    with pytest.raises(InputError, match=r"^cluster\.launch\.kind='pbs'; it must be one of ray, "):
        load(["cluster=slurm", "cluster.launch.kind=pbs"])


def test_load_field_of_another_kind_is_named() -> None:
    with pytest.raises(InputError, match=r"cluster\.launch\.image is no known field; cluster\.lau"):
        load(["cluster=slurm", "+cluster.launch.image=x"])


@pytest.mark.usefixtures("finished")
def test_launch_local_runs_here(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    assert main(["launch", *small, *folders]) == 0
    assert "tiny on myriadlama-mini" in capsys.readouterr().out
    assert list(tmp_path.glob("results/*/metrics.parquet"))

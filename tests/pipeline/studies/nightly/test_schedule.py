"""units: what a scheduler is given is what it takes, and lets the exit code be seen."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from croniter import croniter

from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.studies.nightly.night import Unit
from factsweep.pipeline.studies.nightly.schedule import UNITS, Start, cron, kubernetes, systemd
from tests.messages import naming

UNIT = Unit(at="02:30", image="factsweep:cuda", secret="hub", claim="data", gpus=8)
ODD = "run_name=50% of $HOME"


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A program in the place of factsweep that writes down its words and ends with code 3."""
    program = tmp_path / "factsweep"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "word: $word"; done\nexit 3\n')
    program.chmod(0o755)
    return Start("demo", ("nightly", "demo", ODD), str(program), str(tmp_path))


def command(line: str) -> str:
    """What cron hands to the shell: an escaped percent sign is one."""
    return line.split(" ", 5)[5].replace("\\%", "%").strip()


def shell(line: str) -> subprocess.CompletedProcess[str]:
    words = ["/bin/sh", "-c", command(line)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_cron_line_runs_every_night_at_its_time(start: Start) -> None:
    line = cron(start, UNIT)
    assert line.count("\n") == 1
    times = line.split(" ", 5)[:5]
    assert croniter.is_valid(" ".join(times))
    assert times[:2] == ["30", "2"]
    assert "%" not in line.replace("\\%", "")  # a bare one would end the command


def test_cron_command_logs_and_keeps_the_exit_code(start: Start, tmp_path: Path) -> None:
    done = shell(cron(start, UNIT))
    assert done.returncode == 3
    log = tmp_path / "results" / "demo.log"
    assert done.stdout == f"factsweep nightly demo: exit code 3, see {log}\n"
    assert log.read_text().splitlines() == ["word: nightly", "word: demo", f"word: {ODD}"]


def test_cron_command_that_succeeds_says_nothing(start: Start, tmp_path: Path) -> None:
    done = shell(cron(replace(start, program="/bin/true"), UNIT))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_cron_command_does_not_start_beside_the_last_night(start: Start, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    held = ["flock", "--no-fork", "results/demo.lock", "sleep", "60"]
    with subprocess.Popen(held, cwd=tmp_path) as holder:
        while shell(cron(start, UNIT)).returncode == 3:
            pass  # until the holder has its lock
        assert shell(cron(start, UNIT)).returncode == 75
        holder.terminate()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_units_are_what_systemd_takes(start: Start, tmp_path: Path) -> None:
    files = systemd(start, UNIT).split("# /etc/systemd/system/")[1:]
    names = []
    for text in files:
        name, _, content = text.partition("\n")
        (tmp_path / name).write_text(content)
        names.append(name)
    assert names == ["factsweep-demo.service", "factsweep-demo.timer"]
    verify = ["systemd-analyze", "verify", *(str(tmp_path / name) for name in names)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "factsweep" in line]
    assert (done.returncode, ours) == (0, [])
    assert "OnCalendar=*-*-* 02:30:00" in files[1]
    assert '"run_name=50%% of $$HOME"' in files[0]


def test_kubernetes_cron_job_fits_its_schema_and_is_never_retried(start: Start) -> None:
    manifest = yaml.safe_load(kubernetes(start, UNIT))
    kubernetes_validate.validate(manifest, "1.37", strict=True)
    assert manifest["spec"]["concurrencyPolicy"] == "Forbid"
    job = manifest["spec"]["jobTemplate"]["spec"]
    assert job["backoffLimit"] == 0
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"
    assert container["command"] == ["factsweep", "nightly", "demo", ODD]
    assert container["envFrom"] == [{"secretRef": {"name": "hub"}}]
    assert container["resources"]["limits"] == {"memory": "16Gi", "nvidia.com/gpu": 8}
    assert container["resources"]["requests"] == {"cpu": 2, "memory": "16Gi"}
    assert job["activeDeadlineSeconds"] == 12 * 3600


def test_kubernetes_cron_job_may_run_on_tainted_nodes_and_pull_in_secret(start: Start) -> None:
    taint = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    unit = replace(UNIT, tolerations=(taint,), pull_secrets=("registry-key",))
    manifest = yaml.safe_load(kubernetes(start, unit))
    kubernetes_validate.validate(manifest, "1.37", strict=True)
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [taint]
    assert pod["imagePullSecrets"] == [{"name": "registry-key"}]


def test_kubernetes_schema_refuses_what_is_misspelt(start: Start) -> None:
    manifest = yaml.safe_load(kubernetes(start, UNIT))
    manifest["spec"]["concurencyPolicy"] = "Forbid"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


@pytest.mark.parametrize("at", ["24:00", "2", "02:60", ""])
@pytest.mark.parametrize("kind", UNITS)
def test_units_impossible_time_is_refused(start: Start, kind: str, at: str) -> None:
    with pytest.raises(InputError, match=naming("'02:30'", "give")):
        UNITS[kind](start, replace(UNIT, at=at))


@pytest.mark.parametrize("kind", UNITS)
def test_nightly_unit_is_printed_and_nothing_run(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    results = f"results={tmp_path}/results"
    assert main(["nightly", "demo", "--unit", kind, results]) == 0
    assert results in capsys.readouterr().out
    assert not (tmp_path / "results").exists()


def test_unit_of_a_name_that_a_shell_would_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("'my night'")):
        Start.here(str(tmp_path / "my night.yaml"), [])


def test_unit_of_a_file_is_none_for_a_pod() -> None:
    start = Start("own", ("nightly", "own.yaml"), "/bin/factsweep", "/srv")
    with pytest.raises(InputError, match=naming("own.yaml")):
        kubernetes(start, UNIT)


def test_unit_with_a_key_in_a_url_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["nightly", "demo", "results=s3://AKID:wJ/planted@bucket", "--unit", "cron"]
    assert main(asked) == 2
    out, err = capsys.readouterr()
    assert "the unit holds a secret" in err
    assert "planted" not in out + err

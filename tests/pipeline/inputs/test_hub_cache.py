"""The hub's cache: what lies there is what its names say, or it is not used."""

import hashlib
from pathlib import Path

import huggingface_hub.constants
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.inputs.hub import own_files
from tests.messages import naming

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG, WEIGHTS = b"{}", bytes(range(256)) * 40


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot as the hub's client keeps it: links to blobs that are named by their content."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some--model"
    snapshot, blobs = repository / "snapshots" / COMMIT, repository / "blobs"
    (snapshot / "inner").mkdir(parents=True)
    blobs.mkdir()
    git = hashlib.sha1(b"blob 2\x00" + CONFIG).hexdigest()
    for name, blob, content in (
        ("config.json", git, CONFIG),
        ("inner/model.safetensors", hashlib.sha256(WEIGHTS).hexdigest(), WEIGHTS),
    ):
        (blobs / blob).write_bytes(content)
        (snapshot / name).symlink_to(blobs / blob)
    return snapshot


def test_own_files_of_a_sound_snapshot_are_none(snapshot: Path) -> None:
    assert own_files("some/model", COMMIT) == {}


def test_own_files_without_a_snapshot_are_none(snapshot: Path) -> None:
    assert own_files("some/other", COMMIT) == {}


@pytest.mark.parametrize("name", ["config.json", "inner/model.safetensors"])
def test_own_files_blob_changed_is_refused(snapshot: Path, name: str) -> None:
    path = snapshot / name
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=naming(name, "some/model", "remove")):
        own_files("some/model", COMMIT)


def test_own_files_file_in_place_of_a_link_is_one(snapshot: Path) -> None:
    path = snapshot / "config.json"
    path.unlink()
    path.write_bytes(CONFIG)
    assert own_files("some/model", COMMIT) == {"config.json": path}


def test_own_files_link_to_elsewhere_is_one(snapshot: Path, tmp_path: Path) -> None:
    path = snapshot / "config.json"
    path.unlink()
    (tmp_path / "mine.json").write_bytes(CONFIG)
    path.symlink_to(tmp_path / "mine.json")
    assert own_files("some/model", COMMIT) == {"config.json": path}

"""Digests: every byte, name and length counts; what is kept counts while the file is the same."""

import json
import mmap
import os
import posix
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.inputs import digests
from factsweep.pipeline.inputs.digests import digest_contents, digest_each, digest_files, list_files
from tests.messages import naming

SIZE = 6 << 20  # its digest is kept
LONG_AGO_NS = 1_600_000_000 * 10**9


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose clock is fine: nothing has to wait for its next tick."""
    monkeypatch.setattr(digests, "_TICK_NS", 0)


@pytest.fixture
def weights(tmp_path: Path, settled: None) -> Path:
    path = tmp_path / "model" / "weights.bin"
    path.parent.mkdir()
    path.write_bytes(bytes(SIZE))
    return path


@pytest.fixture
def n_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many files have been read whole."""
    paths: list[Path] = []
    read = digests._hash

    def counted(path: Path, count: digests.Count) -> str:
        paths.append(path)
        return read(path, count)

    monkeypatch.setattr(digests, "_hash", counted)
    return lambda: len(paths)


def digest(path: Path) -> str:
    return digest_each({"it": path})["it"]


def record(path: Path) -> Path:
    return path.with_name(f".{path.name}.sha256")


def test_digest_unchanged_file_is_read_once(weights: Path, n_read: Callable[[], int]) -> None:
    assert digest(weights) == digest(weights)
    assert n_read() == 1


def test_digest_of_changed_or_other_file_with_the_old_time_is_read_again(weights: Path) -> None:
    os.utime(weights, ns=(LONG_AGO_NS, LONG_AGO_NS))
    values = {digest(weights)}
    with weights.open("r+b") as file:
        file.seek(SIZE // 2)
        file.write(b"\x01")
    os.utime(weights, ns=(LONG_AGO_NS, LONG_AGO_NS))
    values.add(digest(weights))
    other = weights.with_name("other")
    other.write_bytes(b"\x01" * SIZE)
    os.utime(other, ns=(LONG_AGO_NS, LONG_AGO_NS))
    other.replace(weights)
    assert len({*values, digest(weights)}) == 3


def test_digest_written_through_a_map_while_it_is_unchanged_to_its_times_is_read_anew(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second write to a page that is not on the disk yet has no time of its own."""
    monkeypatch.setattr(os, "fsync", posix.fsync)  # the real one, which tests do without elsewhere
    with weights.open("r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        values = set()
        for value in range(3):
            pages[0] = value
            values.add(digest(weights))
    assert len(values) == 3


def test_digest_of_a_file_in_memory_is_not_kept(
    weights: Path, n_read: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = weights.stat().st_dev
    device_number = f"{os.major(device)}:{os.minor(device)}"
    monkeypatch.setattr(digests, "_list_file_systems", lambda: {device_number: "tmpfs"})
    digest(weights)
    digest(weights)
    assert n_read() == 2


def test_digest_only_the_inode_differs_is_read_anew(
    weights: Path, n_read: Callable[[], int]
) -> None:
    digest(weights)
    content = json.loads(record(weights).read_text())
    other = digests._State(**{**content["state"], "inode": content["state"]["inode"] + 1})
    record(weights).write_text(digests._format_record("0" * 64, other))
    assert digest(weights) == content["sha256"]
    assert n_read() == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[1]",
        lambda text: "\x00" * len(text),
        lambda text: re.sub(r'"sha256": "\w', '"sha256": "g', text),
        lambda text: json.dumps({**json.loads(text), "state": {"size": SIZE}}),
    ],
)
def test_digest_damaged_record_is_made_anew(weights: Path, damage: Callable[[str], str]) -> None:
    value = digest(weights)
    text = record(weights).read_text()
    record(weights).write_text(damage(text))
    assert digest(weights) == value
    assert record(weights).read_text() == text


def test_digest_file_just_written_is_not_kept(tmp_path: Path) -> None:
    """Within a tick of the clock it could change again and look the same."""
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(SIZE))
    digest(path)
    assert not record(path).exists()


def test_digest_file_changed_while_it_is_read_is_refused(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = digests._hash
    monkeypatch.setattr(digests, "_hash", lambda path, _: read(path, lambda _: weights.touch()))
    with pytest.raises(InputError, match=naming("weights.bin", "run again")):
        digest(weights)
    assert not record(weights).exists()


def test_digest_is_cached_at_home_if_its_folder_is_read_only_or_read_each_time(
    weights: Path, tmp_path: Path, n_read: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, at_home = digests._record_paths(weights)
    nowhere = Path("/proc/none/.weights.bin.sha256")  # where not even root can write
    monkeypatch.setattr(digests, "_record_paths", lambda _: (nowhere, at_home))
    assert digest(weights) == digest(weights)
    assert n_read() == 1
    assert len(list((tmp_path / "home" / "digests").iterdir())) == 1
    monkeypatch.setattr(digests, "_record_paths", lambda _: (nowhere, nowhere))
    assert digest(weights) == digest(weights)
    assert n_read() == 3


def test_digest_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("gone", "read")):
        digest(tmp_path / "gone")


def test_set_of_other_names_or_bytes_is_another() -> None:
    sets = [
        *({"a": b"x", "b": b"y"}, {"a": b"xy", "b": b""}, {"a": b"x"}),
        *({"a": b"x", "c": b"y"}, {"a": b"x", "b": b"y", "c": b""}),
    ]
    assert len({digest_contents(contents) for contents in sets}) == len(sets)


def test_set_written_is_the_same_as_its_contents(tmp_path: Path) -> None:
    contents = {"a": b"x", "b/c": b"yz"}
    (tmp_path / "b").mkdir()
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert digest_files(list_files(tmp_path)) == digest_contents(contents)


def test_below_leaves_out_what_is_hidden_and_follows_links(tmp_path: Path) -> None:
    model, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    for path in (model / ".git" / "x", model / ".note", model / "a" / "b", elsewhere / "c"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (model / "link").symlink_to(elsewhere)
    assert list(list_files(model)) == ["a/b", "link/c"]


def test_below_link_that_cannot_be_followed_is_named(tmp_path: Path) -> None:
    for target, problem in (("gone", "leads nowhere"), (".", "lies in")):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(target)
        with pytest.raises(InputError, match=f"link is a link .*{problem}"):
            list_files(tmp_path)

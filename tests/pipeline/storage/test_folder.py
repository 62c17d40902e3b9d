"""A folder as a store: files exist whole or not at all; the contract of all stores: test_stores."""

import contextlib
import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.storage.store import Store
from tests.messages import naming

FILL = """
from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.storage.store import Store
store = Store("{0}")
store.put("a/one", b"old")
try:
    store.put("a/one", bytes(1 << 20))
except InputError as error:
    print(error, store.get("a/one"), store.names("a"), sep="|")
"""


@contextlib.contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """The kernel refuses to let a file grow longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def not_root() -> Iterator[None]:
    """Run the block as a user that may not write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def read_only() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_put_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    Store(str(tmp_path)).put("a/one", b"content")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "one"]


def test_put_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    old_umask = os.umask(0o027)
    try:
        Store(str(tmp_path)).put("one", b"content")
    finally:
        os.umask(old_umask)
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o640


def test_put_file_too_large_keeps_the_old_one_alone(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.put("a/one", b"old")
    with largest_file(1000), pytest.raises(InputError, match=naming("File", "large")):
        store.put("a/one", bytes(2000))
    assert store.get("a/one") == b"old"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["one"]


def test_put_full_disk_keeps_the_old_file_alone(tmp_path: Path) -> None:
    private = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*private, "true"], check=False).returncode:
        pytest.skip("this machine lets us mount no small disk")
    command = f"mount -t tmpfs -o size=64k tmpfs {tmp_path} && {sys.executable} -"
    process = subprocess.run(
        [*private, "sh", "-c", command],
        input=FILL.format(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    sentence, *contents = process.stdout.strip().split("|")
    assert sentence.startswith(f"{tmp_path}/a/one cannot be written (No space left on device)")
    assert contents == ["b'old'", "['one']"]


def test_put_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Store(str(tmp_path)).put("a/one", b"content")
    assert list((tmp_path / "a").iterdir()) == []


def test_put_read_only_folder_says_so_in_one_sentence(read_only: Path) -> None:
    with not_root(), pytest.raises(InputError) as error:
        Store(str(read_only)).put("a/one", b"content")
    assert str(error.value) == (
        f"{read_only}/a/one cannot be written (Permission denied); make room or choose another "
        "folder with artifacts=… or results=…; what is published is untouched."
    )


def test_put_folder_is_a_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match=naming("file/a/one")):
        Store(f"{tmp_path}/file").put("a/one", b"content")


@pytest.mark.parametrize("scheme", ["hdfs", "abfs", "http"])
def test_put_scheme_of_no_store_is_refused_with_those_there_are(scheme: str) -> None:
    words = (f"artifacts={scheme}://bucket/a", "s3://", "gs://", "az://")
    with pytest.raises(InputError, match=naming(*words)) as refused:
        Store(f"{scheme}://user:planted@bucket/a?region=x").put("one", b"content")
    assert "planted" not in str(refused.value)


def test_names_file_of_an_open_write_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".one.x1y2").write_bytes(b"half")
    assert Store(str(tmp_path)).names("a") == []


def test_where_any_slashes_is_one_path() -> None:
    assert Store("s3://bucket/place/").where("a/one") == "s3://bucket/place/a/one"
    assert Store("/place/").where() == "/place"


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_set_aside_names_that_are_taken_get_a_number(tmp_path: Path, kind: str) -> None:
    store, path = Store(str(tmp_path)), tmp_path / "a/one"
    for _ in range(3):
        path.parent.mkdir(exist_ok=True)
        if kind == "file":
            path.write_text("damaged")
        elif kind == "link":
            path.symlink_to("/nowhere")
        else:
            (path / "below").mkdir(parents=True)
        store.quarantine("a/one")
    assert sorted(p.name for p in (tmp_path / "a/damaged").iterdir()) == ["one", "one.1", "one.2"]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: path.mkdir(), "a folder"),
        (lambda path: path.symlink_to("/nowhere"), "a link to no file"),
        (lambda path: path.symlink_to("/etc/hostname"), "a link out of the store"),
        (os.mkfifo, "something else"),
    ],
    ids=["folder", "dangling", "out", "pipe"],
)
def test_get_what_is_no_file_is_refused(
    tmp_path: Path, make: Callable[[Path], object], kind: str
) -> None:
    make(tmp_path / "one.json")
    with pytest.raises(DamagedFileError, match=rf"one\.json is {kind} where a file should be"):
        Store(str(tmp_path)).get("one.json")


@pytest.mark.parametrize(("is_near", "at_once"), [(True, 1), (False, 16)])
def test_in_turn_no_more_is_asked_than_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_near: bool, at_once: int
) -> None:
    store, requested = Store(str(tmp_path)), list[int]()
    monkeypatch.setattr(type(store._files), "is_near", is_near)
    results = store.in_turn(lambda n: requested.append(n) or n, range(40))
    assert next(results) == 0
    assert len(requested) == at_once
    assert list(results) == [*range(1, 40)]


def test_get_link_within_the_store_is_read(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").symlink_to("one")
    assert Store(str(tmp_path)).get("two") == b"1"


@pytest.mark.parametrize("link", ["a", "a/b"])
def test_get_behind_a_link_out_of_the_store_names_the_link(tmp_path: Path, link: str) -> None:
    (tmp_path / "elsewhere/b").mkdir(parents=True)
    (tmp_path / "elsewhere/b/one").write_text("1")
    store = Store(str(tmp_path / "store"))
    (tmp_path / "store" / link).parent.mkdir(parents=True)
    (tmp_path / "store" / link).symlink_to(tmp_path / "elsewhere" / link[2:])
    for name in ("one", "none"):
        with pytest.raises(DamagedFileError, match=naming(f"store/{link}", "link")) as error:
            store.get(f"a/b/{name}")
        assert error.value.name == link
    (tmp_path / "store/c").symlink_to("d")
    store.put("d/one", b"1")
    assert store.get("c/one") == b"1"


def test_put_new_without_hard_links_asks_for_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    with pytest.raises(
        InputError, match=naming(str(tmp_path), "hard links", "artifacts=")
    ) as error:
        Store(str(tmp_path)).put_new("one", b"1")
    assert "room" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_put_where_a_folder_lies_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(DamagedFileError, match=naming("file should")):
        Store(str(tmp_path)).put("one", b"1")

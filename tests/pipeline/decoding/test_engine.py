"""How engines that share a GPU are loaded."""

import threading
from pathlib import Path

import pytest

from factsweep.pipeline.decoding.engine import in_turn


def test_engines_that_share_a_gpu_load_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    loading, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        with in_turn(["0"]):
            loading.set()
            may_end.wait(60)
            order.append("first")

    def second(gpus: list[str], name: str) -> None:
        with in_turn(gpus):
            order.append(name)

    begun = threading.Thread(target=first)
    begun.start()
    assert loading.wait(60)
    for elsewhere in (["1"], []):
        second(elsewhere, "elsewhere")  # waits for nobody
    waiting = threading.Thread(target=second, args=(["0"], "second"))
    waiting.start()
    may_end.set()
    for each in (begun, waiting):
        each.join(60)
    assert order == ["elsewhere", "elsewhere", "first", "second"]


def test_a_link_in_place_of_the_lock_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with in_turn(["0"]):
        (lock,) = tmp_path.iterdir()
    lock.unlink()
    lock.symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match=lock.name), in_turn(["0"]):
        pass
    assert not (tmp_path / "target").exists()

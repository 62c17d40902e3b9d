"""A node that goes: its engines hear of it, and whoever asks them waits for them."""

import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from factsweep.pipeline.cluster import leaving, order


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(leaving.VARIABLE, str(tmp_path / "leaving"))
    return tmp_path / "leaving"


def asking(within_s: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["/bin/sh", "-euc", order.leave(within_s)])


def test_is_asked_once_the_hook_has_run(folder: Path) -> None:
    assert not leaving.is_asked()
    assert asking(60).wait(240) == 0
    assert leaving.is_asked()


def test_is_asked_without_a_folder_is_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(leaving.VARIABLE, raising=False)
    with leaving.at_work():
        assert not leaving.is_asked()


def test_hook_waits_for_an_engine_at_work(folder: Path) -> None:
    with leaving.at_work():
        hook = asking(60)
        while not leaving.is_asked():
            time.sleep(0.05)
        assert hook.poll() is None
    assert hook.wait(240) == 0


def test_engine_is_at_work_until_the_last_of_its_shards_is_published(folder: Path) -> None:
    with ExitStack() as publishing:
        publishing.enter_context(leaving.at_work())
        with leaving.at_work():
            assert (folder / str(os.getpid())).exists()
        assert (folder / str(os.getpid())).exists()
    assert not (folder / str(os.getpid())).exists()


def test_hook_waits_for_no_engine_that_died(folder: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    folder.mkdir()
    (folder / str(dead.pid)).touch()
    assert asking(3600).wait(240) == 0


def test_hook_waits_no_longer_than_it_may(folder: Path) -> None:
    with leaving.at_work():
        assert asking(1).wait(240) == 0
        assert (folder / str(os.getpid())).exists()

"""The watchdog: in a process that hangs on purpose, and by what it asks of the interpreter."""

import faulthandler
import subprocess
import sys

import pytest

from factsweep.pipeline.decoding.decoder import Watchdog

HANGS = """
import sys
from factsweep.pipeline.decoding.decoder import Watchdog

def answer():
    while True:
        pass

def hang_in_c():
    sys.setswitchinterval(60)  # no other thread of Python's gets a turn
    answer()

with Watchdog().on_guard(0.3):
    hang_in_c()
"""


def test_process_that_hangs_is_ended_and_says_where_it_stood() -> None:
    command = [sys.executable, "-c", HANGS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 1
    assert "Timeout (0:00:00.300000)!" in done.stderr
    assert "in answer" in done.stderr


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The timers that are set to end the process, each in place of the one before; null: none."""
    found: list[float | None] = []

    def later(seconds: float, *, exit: bool) -> None:  # noqa: A002
        assert exit
        found.append(seconds)

    monkeypatch.setattr(faulthandler, "dump_traceback_later", later)
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: found.append(None))
    return found


def test_beat_sets_the_timer_anew_on_guard_alone(timers: list[float | None]) -> None:
    watchdog = Watchdog()
    watchdog.beat()
    assert timers == []
    with watchdog.on_guard(2):
        watchdog.beat()
        assert timers == [2, 2]
    watchdog.beat()
    assert timers[2:] == [None]


def test_guard_within_a_guard_leaves_the_timer_of_the_outer_one(timers: list[float | None]) -> None:
    watchdog = Watchdog()
    with watchdog.on_guard(2):
        with watchdog.on_guard(5):
            assert timers[-1] == 5
        assert timers[-1] == 2
        with watchdog.on_guard(1):
            assert timers[-1] == 2  # as long as the longest
    assert timers[-1] is None
    with pytest.raises(RuntimeError), watchdog.on_guard(2):
        raise RuntimeError
    assert timers[-1] is None

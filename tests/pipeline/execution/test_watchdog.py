"""The watchdog, in processes that hang on purpose."""

import subprocess
import sys

HANGS = """
import sys, time
from factsweep.pipeline.execution.watchdog import Watchdog
watchdog = Watchdog()

def answer():
    while True:
        pass

def hang_in_c():
    sys.setswitchinterval(60)  # no other thread of Python's gets a turn
    answer()

with watchdog.on_guard(0.3):
    hang_in_c()
"""
WORKS = """
import time
from factsweep.pipeline.execution.watchdog import Watchdog
watchdog = Watchdog()
with watchdog.on_guard(5):  # a busy machine may not come to a beat for seconds
    for _ in range(12):
        time.sleep(0.5)
        watchdog.beat()
watchdog.beat()
time.sleep(0.5)
print("done")
"""
HANGS_BESIDE = """
import time
from factsweep.pipeline.execution.watchdog import Watchdog
watchdog = Watchdog()

with watchdog.on_guard(0.3):
    with watchdog.on_guard(0.3):
        pass
    time.sleep(30)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_process_that_hangs_is_ended_and_says_where_it_stood() -> None:
    done = run(HANGS)
    assert done.returncode == 1
    assert "Timeout (0:00:00.300000)!" in done.stderr
    assert "in answer" in done.stderr


def test_process_that_hangs_after_one_of_two_guards_is_ended() -> None:
    done = run(HANGS_BESIDE)
    assert done.returncode == 1
    assert "Timeout (0:00:00.300000)!" in done.stderr


def test_process_that_beats_is_not_ended_nor_after_its_guard() -> None:
    done = run(WORKS)
    assert (done.returncode, done.stdout) == (0, "done\n")

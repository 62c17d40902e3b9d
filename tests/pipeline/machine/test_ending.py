"""end: the exit code is that of the work, even if libraries crash at exit."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# C's exit handlers are where the destructors of Ray, Arrow and the like run: this one crashes.
CRASH = "import ctypes; libc = ctypes.CDLL(None); libc.on_exit(libc.abort, None)"


def python(*lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "\n".join([CRASH, *lines])]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("code", [0, 3])
def test_end_library_that_crashes_at_exit_changes_nothing(code: int) -> None:
    assert python("print(1)").returncode == -signal.SIGABRT
    process = python(f"from factsweep.pipeline.machine.streams import end; print(1); end({code})")
    assert (process.returncode, process.stdout) == (code, "1\n")


def test_command_library_that_crashes_at_exit_changes_nothing() -> None:
    registered = "import atexit; atexit.register(print, 'last')"
    called = "import sys; sys.argv = ['factsweep', 'report', 'results=/nowhere']"
    process = python(registered, called, "from factsweep.pipeline.cli import command; command()")
    assert (process.returncode, process.stdout) == (2, "last\n")
    assert process.stderr.startswith("factsweep: ")

"""Standard output and error of the command: what they cannot show or take, they lose alone."""

import os
import shlex
import subprocess
import sys

import pytest

COMMAND = shlex.join([sys.executable, "-m", "factsweep.pipeline.cli"])
CATALOG = f"{COMMAND} catalog list"
REFUSED = f"{COMMAND} run größer→"


def shell(line: str, encoding: str = "utf-8") -> tuple[int, str]:
    """The exit code of a line of bash, and what it wrote to both streams."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = ["bash", "-c", f"set -o pipefail; {line}"]
    process = subprocess.run(
        command, stdout=-1, stderr=subprocess.STDOUT, check=False, env=environment
    )
    return process.returncode, process.stdout.decode(encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_command_terminal_without_a_character_replaces_that_character(encoding: str) -> None:
    for line in (f"{COMMAND} --help", REFUSED):
        code, text = shell(line)
        replaced = text.encode(encoding, "replace").decode(encoding)
        assert replaced != text
        assert shell(line, encoding) == (code, replaced)


def test_command_stream_that_takes_nothing_ends_with_the_code_of_the_work(
    subtests: pytest.Subtests,
) -> None:
    full = "standard output: No space left on device"
    for line, code, message in (
        (f"{CATALOG} | true", 0, ""),
        (f"{CATALOG} >&-", 0, ""),
        (f"{CATALOG} > /dev/full", 2, full),
        (f"{COMMAND} --help > /dev/full", 0, ""),
        (f"{REFUSED} 2>&1 | true", 2, ""),
        (f"{REFUSED} 2>&-", 2, ""),
        (f"{REFUSED} 2> /dev/full", 2, ""),
    ):
        with subtests.test(line=line.removeprefix(COMMAND)):
            exit_code, text = shell(line)
            assert exit_code == code
            assert message in text
            assert "Traceback" not in text
            assert "Exception ignored" not in text

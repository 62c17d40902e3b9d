"""Notes of shards; live lines; streams that cannot be written."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from rich import console
from rich.console import Console

from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.logs import Meter

WRITTEN = """loading
(EngineCore_DP0 pid=7) INFO 11-22 09:20:11 [core.py:708] Initializing
2026-11-22 09:20:12 INFO engine a1 begins shard generations/f0/generations/P36.0001
2026-11-22 09:20:13 WARNING the lease could not be renewed
Traceback (most recent call last):
RuntimeError: no kernel image
"""


def test_note_of_a_shard_is_none_of_a_death() -> None:
    notes = [logs.is_note(line) for line in WRITTEN.splitlines()]
    assert notes == [False, False, True, False, False, False]


def test_meter_plain_lines_come_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PLAIN_EVERY_S", 1e9)
    with Meter("names") as quiet:
        quiet.show("1 of 2")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(logs, "PLAIN_EVERY_S", 0.0)
    with Meter("names") as plain:
        plain.show("1 of [bold]2")
        plain.show("2 of 2")
    captured = capsys.readouterr()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO "
    expected = rf"{stamp}names: 1 of \[bold\]2\n{stamp}names: 2 of 2\n"
    assert re.fullmatch(expected, captured.err)
    assert captured.out == ""


def test_meter_on_a_terminal_the_line_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        console, "Console", lambda file: Console(file=file, force_terminal=True, width=80)
    )
    with Meter("names") as live:
        live.show("1 of [2]")
    output = capsys.readouterr().err
    assert "names: 1 of [2]" in output
    assert output.endswith("\x1b[1A\x1b[2K")
    assert re.search(r"\x1b\[[\d;]*m", output) is None  # no colours, with or without NO_COLOR


@pytest.mark.parametrize("terminal", [False, True])
def test_text_of_a_file_sends_no_control_character_to_a_log_or_a_terminal(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = "Pa\x1b[2Jr\ris\x00\u202e\x9b\u2028"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(logs, "PLAIN_EVERY_S", 1e9)
    logs.note(planted)
    logs.say(planted)
    with Meter("names") as meter:
        meter.say(planted)
    drawn = re.compile(r"\x1b\[\??\d*[A-Zhl]|\r")
    lines = drawn.sub("", capsys.readouterr().err).splitlines()
    texts = [logs.line(planted), *filter(None, lines)]
    assert len(texts) == 4
    assert all(
        planted.encode("unicode_escape").decode() in text.replace("\\\\", "\\") for text in texts
    )
    assert all(text.isprintable() for text in texts)


COMMAND = shlex.join([sys.executable, "-m", "factsweep.pipeline.cli"])
CATALOG = f"{COMMAND} catalog list"
REFUSED = f"{COMMAND} run größer→"


def shell(line: str, encoding: str = "utf-8") -> tuple[int, str]:
    """The exit code of a line of bash, and the text of both streams."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = ["bash", "-c", f"set -o pipefail; {line}"]
    process = subprocess.run(
        command, stdout=-1, stderr=subprocess.STDOUT, check=False, env=environment
    )
    return process.returncode, process.stdout.decode(encoding)


def test_standard_output_holds_no_control_character_of_a_file() -> None:
    code = "from factsweep.pipeline.machine.streams import *; prepare_streams(); print('a\\x1b[2J')"
    assert shell(shlex.join([sys.executable, "-c", code])) == (0, "a\\x1b[2J\n")


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

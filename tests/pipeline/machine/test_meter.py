"""The line that says how far a piece of work is."""

import re

import pytest
from rich import console
from rich.console import Console

from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.logs import Meter


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
    said = rf"{stamp}names: 1 of \[bold\]2\n{stamp}names: 2 of 2\n"
    assert re.fullmatch(said, captured.err)
    assert captured.out == ""


def test_meter_on_a_terminal_the_line_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        console, "Console", lambda file: Console(file=file, force_terminal=True, width=80)
    )
    with Meter("names") as live:
        live.show("1 of [2]")
    shown = capsys.readouterr().err
    assert "names: 1 of [2]" in shown
    assert shown.endswith("\x1b[1A\x1b[2K")
    assert re.search(r"\x1b\[[\d;]*m", shown) is None  # no colours, with or without NO_COLOR

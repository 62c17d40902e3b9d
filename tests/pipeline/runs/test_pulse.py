"""The pulse of a run that waits: written when there is news, and else from time to time."""

from types import SimpleNamespace
from typing import Any

import pytest

from factsweep.pipeline.runs import pulse


def test_waiting_writes_what_is_new_at_once_and_the_same_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    written = list[str]()
    monkeypatch.setattr(pulse, "time", clock)
    monkeypatch.setattr(pulse, "write", lambda *given: written.append(given[-1]))
    run: Any = None
    beat = pulse.Beat(run)
    for now, why in ((1000, "one"), (1000, "one"), (1000, "two"), (9000, "two")):
        clock.now = now
        beat.waits(why)
    assert written == ["one", "two", "two"]
